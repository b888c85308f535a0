"""Claude Code's protocol, as its SDK starts, writes and reads it: pure functions and folds."""

PROTOCOL_VERSION = "2.1.325"
"""The release of Claude Code whose frames and control requests we implement."""
