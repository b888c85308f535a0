"""Bundles: a session's facts, chain and artifacts in one file. Stores write and read them."""
