"""A file that reserves room, so that an ending can be written on a full disk."""

import os

BALLAST_BYTES = 256 * 1024


class Ballast:
    def __init__(self, home: str) -> None:
        self._path = os.path.join(home, "ballast")

    def lay(self) -> None:
        """Reserve the room, if the disk has enough."""
        try:
            if os.stat(self._path).st_size >= BALLAST_BYTES:
                return
        except OSError:
            pass
        try:
            self._fill()
        except OSError:
            self.free()

    def _fill(self) -> None:
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, BALLAST_BYTES)
            else:
                os.write(fd, bytes(BALLAST_BYTES))
        finally:
            os.close(fd)

    def free(self) -> bool:
        """Release the room. Whether there was any."""
        try:
            os.unlink(self._path)
        except OSError:
            return False
        return True
