"""Policies: rules per mode, their registration, and the judgement of a commitment."""
