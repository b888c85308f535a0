"""Conversations: commands in, facts and notes out."""
