"""The modes: how a group reaches its commitment. Each is a table and the checks beside it."""
