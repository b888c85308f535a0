"""Runs over HTTP, at the paths of the control plane."""
