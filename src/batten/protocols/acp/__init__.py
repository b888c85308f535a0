"""The Agent Client Protocol, version 1, as an agent speaks it: pure codecs.

`rpc` is the envelope, `methods` what a client asks, `asking` what we ask, `content` and
`updates` what is shown, `frames` how facts become updates.
"""

PROTOCOL_VERSION = 1
