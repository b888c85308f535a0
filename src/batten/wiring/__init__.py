"""Turns a typed specification into an open session: the only room that knows all parts."""
