"""Where state lives."""

import os
from collections.abc import Mapping


def batten_home(environ: Mapping[str, str]) -> str:
    """`BATTEN_HOME`, else the XDG state directory."""
    given = environ.get("BATTEN_HOME")
    if given:
        return os.path.abspath(given)
    state = environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "batten")
