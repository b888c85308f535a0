"""Heddle's headless protocol: requests in, events and results out, one object a line.

It implements all of 0.2.0; additions of later minor versions go only to clients that negotiate
them.
"""
