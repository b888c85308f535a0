"""Maestro's headless protocol, served on a session."""
