"""The directory of Batten's state, and the meaning of relative paths."""

import os
from collections.abc import Mapping

from batten.contract.errors import CallerError
from batten.settings.folders import base_folder
from batten.wiring.ownership import refuse_shared


def batten_home(environ: Mapping[str, str], cwd: str) -> str:
    """`BATTEN_HOME`, else the XDG state directory. Raises `CallerError` if others may write it."""
    home = home_path(environ, cwd)
    refuse_shared(home)
    return home


def home_path(environ: Mapping[str, str], cwd: str) -> str:
    """The same, in any state."""
    given = environ.get("BATTEN_HOME")
    if given:
        home = absolute(given, cwd)
    else:
        home = os.path.join(base_folder(environ, "XDG_STATE_HOME", ".local/state"), "batten")
    try:
        home.encode()
    except UnicodeEncodeError as error:
        raise CallerError(f"BATTEN_HOME {home!r} is not UTF-8 text", code="config") from error
    return home


def make_home(home: str) -> None:
    """Make the directory, for its owner alone. Raises `CallerError` if it cannot be made."""
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
    except OSError as error:
        why = f"{home} cannot be made: {error.strerror or error}"
        remedy = "set BATTEN_HOME to a directory that this user may write"
        raise CallerError(f"{why}; {remedy}", code="config") from error


def absolute(path: str, cwd: str) -> str:
    """The absolute path. A relative one needs a current directory that still exists."""
    if not cwd and not os.path.isabs(path):
        raise CallerError("the current directory is gone; go to another", code="config")
    return os.path.normpath(os.path.join(cwd, path))
