"""All records of a run in one document of a plain key/value store: `membership` is the backend over it."""
