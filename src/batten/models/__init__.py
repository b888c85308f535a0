"""One Protocol for every model: a request in, a typed stream out."""
