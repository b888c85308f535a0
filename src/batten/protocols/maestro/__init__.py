"""Maestro's headless protocol: JSON messages for control planes, one a line, both ways."""

PROTOCOL_VERSION = "2026-04-02"
