"""The user's own folders, as the environment names them.

Relative names are ignored: they would resolve inside the current workspace.
"""

import os
from collections.abc import Mapping


def user_home(environ: Mapping[str, str]) -> str:
    """`HOME`, or the home directory in the account database."""
    home = environ.get("HOME", "")
    if os.path.isabs(home):
        return home
    import pwd

    try:
        known = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        known = ""
    return known if os.path.isabs(known) else "/"


def base_folder(environ: Mapping[str, str], variable: str, usual: str) -> str:
    """An XDG base directory: the value of its variable, else the default below the home."""
    folder = environ.get(variable, "")
    return folder if os.path.isabs(folder) else os.path.join(user_home(environ), usual)


def at_home(path: str, environ: Mapping[str, str]) -> str:
    """Expand a leading `~/`."""
    return os.path.join(user_home(environ), path[2:]) if path.startswith("~/") else path
