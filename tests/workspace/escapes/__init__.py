"""Attempts to get out of the sandbox: each is tried in each layer, as root and as another user."""
