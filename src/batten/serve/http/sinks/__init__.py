"""Webhooks and the audit log over HTTP, at the paths of the control plane."""
