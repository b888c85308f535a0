"""Opens files that a repository may have put there: a pipe, a device or a lease never holds us.

The check is of the opened file, so nothing can be swapped in between. A limit bounds what is read.
"""

import errno
import os
import stat
from typing import BinaryIO


class NotRegular(OSError):
    """A pipe or a device in the place of a file."""


def open_regular(path: str, *, pipes: bool = False) -> BinaryIO:
    """Open a file for reading; raises `OSError`, which is `NotRegular` if it is no regular one.

    `pipes`: a person named the path, which may be that of a pipe, as of `<(command)`, or of a
    device. One without a writer ends at once.
    """

    def without_waiting(name: str, flags: int) -> int:
        descriptor = os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY)
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            return descriptor
        if pipes and not stat.S_ISDIR(mode):
            os.set_blocking(descriptor, True)
            return descriptor
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a device"
        raise NotRegular(errno.EINVAL, f"it is {kind}, not a regular file", name)

    return open(path, "rb", opener=without_waiting)


def read_regular(path: str, most: int, *, pipes: bool = False) -> bytes:
    """The first bytes of a file, as `open_regular` opens it."""
    with open_regular(path, pipes=pipes) as file:
        return file.read(most)
