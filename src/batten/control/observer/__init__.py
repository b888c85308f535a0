"""Follows sessions of a runtime elsewhere: reads them over its protocol, never sends in them."""
