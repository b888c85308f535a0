"""The audit log: who did what, over any surface."""
