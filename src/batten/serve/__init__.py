"""Surfaces: I/O for each protocol. Reading and back-pressure are implemented once for all."""
