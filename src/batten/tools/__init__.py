"""The tools an agent can use: one registry, built-ins on the workspace, MCP servers."""
