"""A hosted runner: its identity, its drain with a manifest, and restoring from that manifest."""
