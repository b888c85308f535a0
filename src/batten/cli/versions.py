"""Versions of Batten and of the software it runs on."""

import platform
import sys

import msgspec

from batten import __version__
from batten.journal.opening import store_versions


def versions() -> dict[str, str]:
    """Each name with its version."""
    return {
        "batten": __version__,
        "python": platform.python_version(),
        **store_versions(),
        "msgspec": msgspec.__version__,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "executable": sys.executable,
    }
