"""The rim: where a protocol meets its client. Reading and back-pressure are written once."""
