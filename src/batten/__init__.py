"""Batten runs agents without a screen: one agent, one journal per run, every protocol a view."""

__version__ = "0.1.0"
