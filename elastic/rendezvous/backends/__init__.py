"""Where a rendezvous keeps its records. One module a backend; each is loaded when asked for by name."""
