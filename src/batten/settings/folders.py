"""The user's own folders, as the environment names them, and whether there are settings at all.

Relative names are ignored: they would resolve inside the current workspace.
"""

import os
from collections.abc import Mapping

MANAGED = "/etc/batten/managed-settings"


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


def config_folder(environ: Mapping[str, str]) -> str:
    """`$XDG_CONFIG_HOME/batten`, usually `~/.config/batten`."""
    return os.path.join(base_folder(environ, "XDG_CONFIG_HOME", ".config"), "batten")


def has_settings(workspace: str, environ: Mapping[str, str]) -> bool:
    """Whether there may be a file with settings."""
    return (
        "BATTEN_MANAGED_SETTINGS" in environ
        or _holds_any(os.path.dirname(MANAGED))
        or _holds_any(config_folder(environ))
        or _holds_any(os.path.join(workspace, ".batten"))
        or os.path.lexists(os.path.join(workspace, ".mcp.json"))
    )


def _holds_any(folder: str) -> bool:
    """Whether anything is in a folder, or may be: an empty one is left by earlier sessions."""
    try:
        with os.scandir(folder) as entries:
            return any(entries)
    except FileNotFoundError:
        return False
    except OSError:
        return True
