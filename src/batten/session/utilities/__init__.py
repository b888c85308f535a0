"""A client's own work in the session's workspace: commands, searches, reads, watches."""
