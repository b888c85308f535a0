"""The agent side of the Agent Client Protocol, version 1: pure codecs.

`rpc` has the envelope, `methods` the client's requests, `asking` our requests, `content` and
`updates` the types of output, `frames` the translation of facts to updates.
"""

PROTOCOL_VERSION = 1
