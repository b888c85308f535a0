"""The digest of a folder: every file counts, and links are refused."""

import os
from hashlib import sha256

from batten.settings.files import read_bytes, shown, wrong

_MOST_ENTRIES = 1000
_MOST_BYTES = 16 * 1024 * 1024


def tree_digest(folder: str, within: str | None) -> str:
    """A digest of the names, bytes and executable bits of all files below."""
    left = _MOST_BYTES
    whole = sha256()
    for path in sorted(_files(folder, within), key=os.fsencode):
        data = read_bytes(path, within=within, largest=left)
        left -= len(data)
        name = os.fsencode(os.path.relpath(path, folder))
        runs = b"x" if os.stat(path).st_mode & 0o111 else b"-"
        whole.update(b"%d %b %b %d " % (len(name), name, runs, len(data)))
        whole.update(sha256(data).digest())
    return whole.hexdigest()


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
