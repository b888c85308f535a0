"""The HTTP surface of a hosted runner."""
