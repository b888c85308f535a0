"""The user's own folders, as the environment names them.

A relative name is never taken: it would be a folder of whatever workspace we are in.
"""

import os
from collections.abc import Mapping


def user_home(environ: Mapping[str, str]) -> str:
    """`HOME`, or where the accounts of the machine say that we live."""
    given = environ.get("HOME", "")
    if os.path.isabs(given):
        return given
    import pwd

    try:
        known = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        known = ""
    return known if os.path.isabs(known) else "/"


def base_folder(environ: Mapping[str, str], variable: str, usual: str) -> str:
    """A base directory of XDG: what its variable says, else the usual place in the home."""
    given = environ.get(variable, "")
    return given if os.path.isabs(given) else os.path.join(user_home(environ), usual)


def at_home(path: str, environ: Mapping[str, str]) -> str:
    """A path with `~/` at its beginning made whole."""
    return os.path.join(user_home(environ), path[2:]) if path.startswith("~/") else path
