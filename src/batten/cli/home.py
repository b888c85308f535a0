"""Where state lives, and where we are."""

import os
from collections.abc import Mapping

from batten.contract.errors import CallerError
from batten.settings.folders import base_folder


def batten_home(environ: Mapping[str, str]) -> str:
    """`BATTEN_HOME`, else the XDG state directory."""
    given = environ.get("BATTEN_HOME")
    if given:
        home = absolute(given)
    else:
        home = os.path.join(base_folder(environ, "XDG_STATE_HOME", ".local/state"), "batten")
    try:
        home.encode()
    except UnicodeEncodeError as error:
        raise CallerError(f"BATTEN_HOME {home!r} is not UTF-8 text", code="config") from error
    return home


def absolute(path: str) -> str:
    """The whole path; what is relative needs a directory that is still there."""
    try:
        return os.path.abspath(path)
    except FileNotFoundError as error:
        raise CallerError("the current directory is gone; go to another", code="config") from error
