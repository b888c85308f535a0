"""Hecate over HTTP: rows of the table, each with a thin handler."""
