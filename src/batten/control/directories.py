"""Directories that a client of the service may name: where its runs may write as they are."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

from batten.wiring.home import absolute
from batten.wiring.spec import SessionSpec
from batten.workspace.programs import SYSTEM, is_below

_SYSTEM = (*SYSTEM, "/boot", "/dev", "/etc", "/proc", "/run", "/sys")


def grants_of(base: SessionSpec) -> tuple[str, ...]:
    """The real paths of the directories that tasks were granted by name."""
    named = base.tasks.directories
    return tuple(os.path.realpath(absolute(path, base.cwd)) for path in named)


def unfit_to_write(real: str, environ: Mapping[str, str], granted: Sequence[str] = ()) -> str:
    """Why no run of a client may write in a directory, as the end of a sentence; empty if it may.

    Programs outside the sandbox execute or believe what is there: a shell its startup files, `ssh`
    its keys, the system its services. A client that could write there would act as the user.
    """
    if is_below(real, granted):
        return ""
    what = _meaning_of(real, environ)
    if not what:
        return ""
    return (
        f"{what}, where other programs execute what a run writes; name a directory for work, or"
        f" start the service with --allow-task-dir {real}"
    )


def _meaning_of(real: str, environ: Mapping[str, str]) -> str:
    homes, programs = _places(environ.get("HOME", ""), environ.get("PATH", ""))
    for home in homes:
        if is_below(home, [real]):
            return f"holds the home directory {home}"
        if is_below(real, [home]) and os.path.relpath(real, home).startswith("."):
            return f"is a hidden folder of the home directory {home}"
    if is_below(real, _SYSTEM):
        return "belongs to the system"
    if is_below(real, programs):
        return "is on the PATH of the service"
    return ""


@lru_cache(maxsize=8)
def _places(home: str, search_path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The user's home directories and the folders of programs; both are asked for with each run."""
    import pwd

    named = [home]
    with suppress(KeyError):  # a container's user may have no entry
        named.append(pwd.getpwuid(os.geteuid()).pw_dir)
    return _real(named), _real(search_path.split(":"))


def _real(paths: Iterable[str]) -> tuple[str, ...]:
    real = (os.path.realpath(path) for path in paths if os.path.isabs(path))
    return tuple(path for path in dict.fromkeys(real) if path != "/")
