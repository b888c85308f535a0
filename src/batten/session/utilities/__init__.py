"""What a client does in the session's workspace by itself: commands, searches, reads, watches."""
