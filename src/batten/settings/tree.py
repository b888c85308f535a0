"""A folder as one value with a digest: every file counts, and links are refused.

What is trusted by its digest is used from a private copy of the digested bytes, so that nothing
can be exchanged between the digest and the use.
"""

import os
from hashlib import sha256

from msgspec import Struct

from batten.settings.files import read_bytes, shown, wrong

_MOST_ENTRIES = 1000
_MOST_BYTES = 16 * 1024 * 1024


class File(Struct, frozen=True):
    name: str
    """The path below the folder."""
    data: bytes
    runs: bool
    """Whether it is executable."""


class Tree(Struct, frozen=True):
    """All files of a folder, as they were read once, and the digest of just these bytes."""

    files: tuple[File, ...]
    digest: str


def read_tree(folder: str, within: str | None) -> Tree:
    """Read a folder; the digest is of the names, bytes and executable bits of all files below."""
    left = _MOST_BYTES
    whole = sha256()
    files: list[File] = []
    for path in sorted(_files(folder, within), key=os.fsencode):
        data = read_bytes(path, within=within, largest=left)
        left -= len(data)
        file = File(os.path.relpath(path, folder), data, bool(os.stat(path).st_mode & 0o111))
        files.append(file)
        name = os.fsencode(file.name)
        runs = b"x" if file.runs else b"-"
        whole.update(b"%d %b %b %d " % (len(name), name, runs, len(data)))
        whole.update(sha256(data).digest())
    return Tree(tuple(files), whole.hexdigest())


def tree_digest(folder: str, within: str | None) -> str:
    return read_tree(folder, within).digest


def private_copy(tree: Tree, copies: str) -> str:
    """The path of a folder in `copies` that holds exactly these files, written if it is missing."""
    path = os.path.join(copies, tree.digest)
    if os.path.isdir(path) and tree_digest(path, None) == tree.digest:
        return path
    os.makedirs(copies, mode=0o700, exist_ok=True)
    aside = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    os.mkdir(aside, 0o700)
    for file in tree.files:
        place = os.path.join(aside, file.name)
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        mode = 0o500 if file.runs else 0o400
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(descriptor, "wb") as copy:
            copy.write(file.data)
    _put(aside, path, tree.digest)
    return path


def _put(aside: str, path: str, digest: str) -> None:
    """Move a copy to its place, in which a damaged one, or another process's, may be."""
    from shutil import rmtree

    try:
        os.rename(aside, path)
    except OSError:
        if tree_digest(path, None) == digest:
            rmtree(aside)
            return
        rmtree(path)
        os.rename(aside, path)


def _files(folder: str, within: str | None) -> list[str]:
    files: list[str] = []
    folders = [folder]
    count = 0
    while folders:
        for entry in _entries(folders.pop(), within):
            count += 1
            if count > _MOST_ENTRIES:
                raise wrong(f"{shown(folder, within)} has more than {_MOST_ENTRIES} files")
            if entry.is_symlink():
                # Its target can change while every file here stays the same.
                raise wrong(f"{shown(entry.path, within)} is a link; links are not followed")
            (folders if entry.is_dir() else files).append(entry.path)
    return files


def _entries(folder: str, within: str | None) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise wrong(f"{shown(folder, within)} cannot be read: {error.strerror}") from error
