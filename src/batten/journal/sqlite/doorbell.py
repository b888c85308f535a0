"""The doorbell: a small file that wakes followers in other processes after a commit.

It holds the last committed position. Writers ring under the lock, so it never goes
backwards; it is never newer than the store unless the store lost its end.
"""

import asyncio
import os
import struct
import threading
from collections.abc import Callable

_POSITION = struct.Struct("<q")
_IN_MODIFY = 0x2
POLL_S = 0.01
_LONGEST_POLL_S = 0.05
_OWN_S = 0.005


class Doorbell:
    """The writer's end; `verify` reads it too."""

    def __init__(self, path: str, *, writing: bool) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CREAT if writing else os.O_RDONLY
        try:
            self._fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            self._fd = -1

    def ring(self, position: int) -> None:
        try:
            os.pwrite(self._fd, _POSITION.pack(position), 0)
        except OSError:
            # A full disk has no room for a first ring. The commit stands.
            return

    def position(self) -> int:
        """The last position rung; 0 before the first."""
        if self._fd < 0:
            return 0
        data = os.pread(self._fd, _POSITION.size, 0)
        return int(_POSITION.unpack(data)[0]) if len(data) == _POSITION.size else 0

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class BellListener:
    """Calls `rung` on the loop when the bell rang; it returns whether another process did.

    Polls the file, and uses inotify once `listen` is called or another process has rung: closing
    an inotify descriptor takes the kernel many milliseconds. Without inotify it polls often.
    """

    def __init__(
        self, bell: Doorbell, loop: asyncio.AbstractEventLoop, rung: Callable[[], bool]
    ) -> None:
        self._bell = bell
        self._loop = loop
        self._rung = rung
        self._seen = bell.position()
        self._pause_s = POLL_S
        self._longest_s = _LONGEST_POLL_S
        self._fd: int | None = None
        self._timer = loop.call_later(POLL_S, self._poll)

    def listen(self) -> None:
        """Notice every ring from now on."""
        if self._fd is not None or self._longest_s == POLL_S:
            return
        self._fd = _inotify(self._bell.path)
        if self._fd is not None:
            try:
                self._hear()
            except NotImplementedError:
                os.close(self._fd)
                self._fd = None
        if self._fd is None:
            self._longest_s = self._pause_s = POLL_S
            return
        self._timer.cancel()
        self._rung()  # it may have rung in between

    def _hear(self) -> None:
        assert self._fd is not None
        self._loop.add_reader(self._fd, self._readable)

    def _readable(self) -> None:
        assert self._fd is not None
        try:
            os.read(self._fd, 4096)
        except BlockingIOError:
            return
        if not self._rung():
            # Our own commits must not wake us each time: pause before the next read.
            self._loop.remove_reader(self._fd)
            self._timer = self._loop.call_later(_OWN_S, self._hear)

    def _poll(self) -> None:
        position = self._bell.position()
        if position != self._seen or position == 0:
            self._seen = position
            if self._rung():
                self.listen()
                if self._fd is not None:
                    return
        self._pause_s = min(2 * self._pause_s, self._longest_s)
        self._timer = self._loop.call_later(self._pause_s, self._poll)

    def close(self) -> None:
        self._timer.cancel()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            # Not on the loop: it would block for as long as the kernel takes.
            descriptor, self._fd = self._fd, None
            try:
                threading.Thread(target=os.close, args=(descriptor,), daemon=True).start()
            except RuntimeError:  # the machine has no room for another thread
                os.close(descriptor)


def _inotify(path: str) -> int | None:
    """A descriptor that becomes readable when the file is written; None if unsupported."""
    import sys

    if sys.platform != "linux":
        return None
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    fd = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    if fd < 0:
        return None
    if libc.inotify_add_watch(fd, os.fsencode(path), _IN_MODIFY) < 0:
        os.close(fd)
        return None
    return fd
