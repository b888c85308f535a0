"""The agent: a loop of model calls and tools, and the rules it keeps."""
