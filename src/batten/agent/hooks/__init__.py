"""Hooks: programs and callbacks that receive the events of a run and may deny or change them."""
