"""Heddle's protocol on standard input and output."""
