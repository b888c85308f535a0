"""Claude Code's protocol served on standard input and output, for its SDK."""
