"""A Unix socket below the home, for its owner only.

Of several servers of one home, one has it. Another takes it over when that one stops or is killed.
"""

import errno
import fcntl
import os
import socket
import stat
from contextlib import suppress

RETRY_S = 1.0
"""How often a server without the socket tries to take it."""


class LocalSocket:
    """The path of a socket, and the lock of the server that has it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock: int | None = None

    def take(self) -> socket.socket | None:
        """Bind the socket; it does not listen yet. None if another server has it.

        Replaces a socket that a killed server left. Raises `OSError` if it cannot be bound.
        """
        lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if stat.S_ISSOCK(os.lstat(self.path).st_mode):
                    os.unlink(self.path)
            bound.bind(self.path)
            # No client can connect before it listens.
            os.chmod(self.path, 0o600)
        except BlockingIOError:
            bound.close()
            os.close(lock)
            return None
        except OSError:
            bound.close()
            os.close(lock)
            raise
        self._lock = lock
        return bound

    def release(self) -> None:
        """Remove the socket and let another server take it; nothing if this one has it not."""
        if self._lock is not None:
            with suppress(FileNotFoundError):
                os.unlink(self.path)
            self.leave()

    def leave(self) -> None:
        """Close the lock. In a forked child: the parent keeps the socket."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def why_not_taken(error: OSError) -> str:
    """The reason for people."""
    in_use = error.errno == errno.EADDRINUSE
    return "another file is there" if in_use else error.strerror or str(error)
