"""Sinks: readers of the journal that tell others what happened, each by its own cursor."""
