"""The name under which this program can be called again."""

import os
import shlex
import sys


def program_name() -> str:
    """`batten` if a shell finds this program by that name; else how it was called."""
    called = sys.argv[0]
    if os.path.basename(called) == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m batten"
    paths = [os.path.join(folder, "batten") for folder in os.get_exec_path()]
    found = next((path for path in paths if os.access(path, os.X_OK)), "")
    if os.path.realpath(found) == os.path.realpath(called) or not os.path.isfile(called):
        return "batten"
    return shlex.quote(called)
