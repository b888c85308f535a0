"""Permission rules: what a rule matches, and the verdict on a tool call."""
