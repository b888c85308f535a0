"""Validates the directories that a session may read and write beside its workspace."""

import os
from collections.abc import Iterable

from batten.contract.errors import CallerError
from batten.settings.contract import Settings
from batten.wiring.home import absolute
from batten.wiring.spec import SessionSpec
from batten.workspace.programs import is_below

MOST_DIRECTORIES = 32


def additional_directories(
    spec: SessionSpec, found: Settings, *, workspace: str, protected: Iterable[str]
) -> tuple[str, ...]:
    """Their real paths, each once, without those that the workspace already holds.

    Raises `CallerError` for a path that is no directory, is `/`, or belongs to Batten itself.
    """
    guarded = [os.path.realpath(path) for path in protected]
    named = [(path, "--add-dir", "usage") for path in spec.add_dirs]
    named += [(path, "additional_directories", "config") for path in found.directories]
    chosen: dict[str, None] = {}
    for path, key, code in named:
        real = _checked(path, spec.cwd, guarded, key, code)
        if not is_below(real, [workspace]):
            chosen[real] = None
    if len(chosen) > MOST_DIRECTORIES:
        message = f"{len(chosen)} additional directories are named; at most {MOST_DIRECTORIES}"
        raise CallerError(message, code="usage")
    return tuple(chosen)


def _checked(path: str, cwd: str, guarded: list[str], key: str, code: str) -> str:
    if not path.strip() or "\0" in path:
        raise CallerError(f"{key} {path!r} names no directory", code=code)
    real = os.path.realpath(absolute(path, cwd))
    try:
        real.encode()
    except UnicodeEncodeError as error:
        raise CallerError(f"{key} {real!r} is not UTF-8 text", code=code) from error
    if not os.path.isdir(real):
        what = "is not a directory" if os.path.exists(real) else "does not exist"
        raise CallerError(f"{key} {path} {what}; name a directory that is there", code=code)
    if real == "/":
        message = f"{key} {path} would open the whole machine; name the directories that are needed"
        raise CallerError(message, code=code)
    if is_below(real, guarded):
        message = f"{key} {path} belongs to Batten, whose state and settings no run may change"
        raise CallerError(message, code=code)
    return real
