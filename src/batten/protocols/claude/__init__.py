"""Claude Code's protocol: what its SDK starts, says and reads, as pure functions and folds."""

PROTOCOL_VERSION = "2.1.325"
"""The release of Claude Code whose frames and control requests these are."""
