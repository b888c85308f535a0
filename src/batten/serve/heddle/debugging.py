"""Debug output for `HEDDLE_DEBUG`: requests and responses by kind and size, never content."""

import os

from batten.serve.output import say


class Debugging:
    """Writes lines of the enabled channels to standard error or a file."""

    def __init__(self, channels: tuple[str, ...], path: str) -> None:
        self._channels = channels
        self._descriptor: int | None = None
        if channels and path:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            try:
                self._descriptor = os.open(path, flags, 0o600)
            except OSError as error:
                say(f"batten: {path} cannot be written: {error.strerror}")

    def tell(self, channel: str, text: str) -> None:
        if "*" not in self._channels and channel not in self._channels:
            return
        line = f"heddle:{channel}: {text}"
        if self._descriptor is None:
            say(line)
            return
        try:
            os.write(self._descriptor, f"{line}\n".encode(errors="replace"))
        except OSError:
            self._descriptor = None  # later lines go to standard error

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
