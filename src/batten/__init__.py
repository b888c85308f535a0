"""Batten runs agents without a screen: one agent, one durable journal per run, every protocol a view."""

__version__ = "0.1.0"
