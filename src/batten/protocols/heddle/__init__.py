"""Heddle's headless protocol: requests in, events and results out, one object a line.

Everything of 0.2.0 is spoken; what later minors added is sent to clients that ask for them.
"""
