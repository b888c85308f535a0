"""Hooks: programs and callbacks that hear of an event in a run and may refuse or change it."""
