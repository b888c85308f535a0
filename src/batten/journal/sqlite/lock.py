"""The lock between processes: `flock` on a side file, taken around every transaction.

SQLite's own lock is unfair (the last holder usually gets it again) and does not cover creating
the file. This one queues in the kernel and waits only for a given time.
"""

import fcntl
import os
import threading

from batten.contract.errors import StoreBusy


class FileLock:
    """Held by one thread at a time: the writer's, or the one that opens the journal."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._mutex = threading.Lock()
        self._ask = threading.Semaphore(0)
        self._granted = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._queued = False
        self._wanted = False
        self._closed = False

    def acquire(self, patience_s: float) -> None:
        """Take the lock. Raises `StoreBusy` if others hold it longer than `patience_s`."""
        with self._mutex:
            if self._take():
                return
            if not self._queued:
                self._queue()
            self._wanted = True
        if self._granted.acquire(timeout=patience_s):
            return
        with self._mutex:
            if self._granted.acquire(blocking=False):
                return
            self._wanted = False
        raise StoreBusy(f"other processes held {self._path} for more than {patience_s:g} s")

    def is_gone(self) -> bool:
        """Whether the file was removed, and the journal beside it most likely too."""
        return os.fstat(self._fd).st_nlink == 0

    def try_acquire(self) -> bool:
        """Take the lock if it is free."""
        with self._mutex:
            return self._take()

    def _take(self) -> bool:
        if self._queued:
            return False
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _queue(self) -> None:
        """Let a thread wait in the kernel's queue: `flock` itself has no timeout."""
        if self._thread is None:
            thread = threading.Thread(target=self._stand, name="journal-lock", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the machine has no room for another
                raise StoreBusy(f"{self._path} is held, and cannot be waited for: {error}") from (
                    error
                )
            self._thread = thread
        self._queued = True
        self._ask.release()

    def _stand(self) -> None:
        while self._ask.acquire() and self._queued:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            with self._mutex:
                self._queued = False
                if self._wanted:
                    self._wanted = False
                    self._granted.release()
                elif self._closed:
                    os.close(self._fd)
                else:
                    fcntl.flock(self._fd, fcntl.LOCK_UN)

    def release(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            self._ask.release()
            if not self._queued:
                os.close(self._fd)
