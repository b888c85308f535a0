"""Finds secrets in whole texts and in streams; seals data that must return unchanged."""
