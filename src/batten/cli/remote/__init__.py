"""`batten --server URL`: commands and print mode against a service instead of the local journal."""
