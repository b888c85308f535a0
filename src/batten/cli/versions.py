"""Versions of Batten and of the software it runs on."""

import platform
import sys

import apsw
import msgspec

from batten import __version__


def versions() -> dict[str, str]:
    """Each name with its version."""
    return {
        "batten": __version__,
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "apsw": apsw.apsw_version(),
        "msgspec": msgspec.__version__,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "executable": sys.executable,
    }
