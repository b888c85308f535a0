"""Coordination sessions in the journal: each is a run, each accepted message a fact."""
