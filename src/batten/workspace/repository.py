"""The repository around a directory, told by its files: git itself is not started."""

import os

from msgspec import Struct

from batten.settings.regular import read_regular

_LONGEST_NAME = 4096


class Repository(Struct, frozen=True):
    top: str
    """The working tree."""
    own: str
    """The git directory of this working tree."""
    common: str
    """The git directory that all its working trees share."""


def find_repository(directory: str) -> Repository | None:
    """The repository that holds a real directory, found as git finds it. May raise `OSError`."""
    top: str = directory
    while not os.path.lexists(os.path.join(top, ".git")):
        if top == "/":
            return None
        top = os.path.dirname(top)
    own = os.path.join(top, ".git")
    if os.path.isfile(own):
        own = os.path.join(top, first_text(own).removeprefix("gitdir:").strip())
    shared = os.path.join(own, "commondir")
    common = os.path.join(own, first_text(shared).strip()) if os.path.isfile(shared) else own
    return Repository(top, os.path.realpath(own), os.path.realpath(common))


def first_text(path: str) -> str:
    """The beginning of a file of git's, which is short. No name in it has a NUL."""
    text = read_regular(path, _LONGEST_NAME).partition(b"\0")[0]
    return text.decode(errors="surrogateescape")
