"""The static rendezvous: fixed ranks, over a store on node rank 0. `handler` has the documented class."""
