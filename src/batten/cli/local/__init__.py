"""`batten -p` in a process that the service of this home has loaded already.

`caller` is the thin client: it hands its arguments, environment, directory and descriptors over a
Unix socket to `fork_server`, whose child runs print mode with them, as this process would.
"""
