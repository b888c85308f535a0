"""The conformance suite: checks any program for the promises of Heddle, Maestro and ACP.

It uses none of our codecs: the wire format is written down a second time, so that a mistake in a
codec cannot hide itself.
"""
