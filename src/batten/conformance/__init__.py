"""The conformance suite: promises of Heddle, Maestro and ACP, checked on any program from outside.

Nothing here uses our codecs: what a wire must look like is written down once more, so that a
mistake of theirs cannot hide itself.
"""
