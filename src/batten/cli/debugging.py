"""`--debug`: a log file of one invocation, for finding out why something failed or took long.

Facts are in the journal; the log has what surrounds them: connections, servers, the sandbox,
tracebacks. Texts of prompts, models and tools appear by their size only, secrets not at all.
"""

import logging
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import suppress

from batten import __version__
from batten.cli import current_directory
from batten.contract.errors import CallerError
from batten.redact.redactor import Redactor
from batten.serve.output import say
from batten.wiring.home import absolute, batten_home

_KEPT = 20
"""How many logs a home keeps."""
_LARGEST = 64 * 1024 * 1024
_LONGEST_WORD = 200
_TOLD = ("BATTEN_", "HTTP", "NO_PROXY", "SSL_", "XDG_")
_TOLD_ENDS = ("_API_KEY", "_BASE_URL", "_AUTH_TOKEN", "_HOST")


def open_log(options: Namespace, argv: list[str], environ: Mapping[str, str]) -> "DebugLog":
    """The log that the flags ask for. Raises `CallerError` if it cannot be written."""
    if options.debug_file is not None:
        path = absolute(options.debug_file, current_directory())
    else:
        path = _new_path(os.path.join(batten_home(environ, current_directory()), "debug"))
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        message = f"the debug log {path} cannot be written: {error.strerror}"
        raise CallerError(message, code="config") from error
    log = DebugLog(path, descriptor, environ)
    log.begin(argv, environ)
    return log


def _new_path(folder: str) -> str:
    """A new name, which sorts by time; logs beyond the newest are removed."""
    with suppress(OSError):
        names = sorted(name for name in os.listdir(folder) if name.endswith(".log"))
        for name in names[: max(0, len(names) - _KEPT + 1)]:
            os.unlink(os.path.join(folder, name))
    return os.path.join(
        folder, f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}.log"
    )


class DebugLog(logging.Handler):
    """Writes each record at once, so that a killed process leaves its last words."""

    def __init__(self, path: str, descriptor: int, environ: Mapping[str, str]) -> None:
        super().__init__()
        self.path = path
        self._descriptor: int | None = descriptor
        self._redact = Redactor.from_environment(environ).text
        self._size = 0
        self._logger = logging.getLogger("batten")
        self._began = time.monotonic()

    def begin(self, argv: list[str], environ: Mapping[str, str]) -> None:
        self._logger.addHandler(self)
        self._logger.setLevel(logging.DEBUG)
        self._logger.propagate = False
        words = " ".join(_shortened(word) for word in argv)
        self._logger.debug(
            "started version=%s python=%s system=%s pid=%d cwd=%s",
            __version__,
            sys.version.split()[0],
            " ".join(os.uname()[::2]),
            os.getpid(),
            current_directory(),
        )
        self._logger.debug("arguments %s", words)
        told = (name for name in environ if name.startswith(_TOLD) or name.endswith(_TOLD_ENDS))
        self._logger.debug("variables set: %s", " ".join(sorted(told)) or "none")

    def emit(self, record: logging.LogRecord) -> None:
        if self._descriptor is None or self._size > _LARGEST:
            return
        instant = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        text = record.getMessage()
        if record.exc_info is not None and record.exc_info[1] is not None:
            import traceback

            text += "\n" + "".join(traceback.format_exception(record.exc_info[1])).rstrip()
        place = record.name.removeprefix("batten").lstrip(".") or "batten"
        line = f"{instant}.{record.msecs:03.0f}Z {place} {self._redact(text)}"
        data = line.replace("\n", "\n    ").encode(errors="replace") + b"\n"
        self._size += len(data)
        if self._size > _LARGEST:
            data = b"the log is full\n"
        with suppress(OSError):  # the log must never fail what it logs
            os.write(self._descriptor, data)

    def leaving(self, leave: Callable[[int], object] | None) -> Callable[[int], object] | None:
        """The same way to end the process, with the log closed before."""
        if leave is None:
            return None

        def close_and_leave(code: int) -> None:
            self.end(code)
            leave(code)

        return close_and_leave

    def ended(self, code: int) -> int:
        """Like `end`; returns the code."""
        self.end(code)
        return code

    def end(self, code: int) -> None:
        """Close the log and say where it is; a second call does nothing."""
        if self._descriptor is None:
            return
        self._logger.debug("ended code=%d after_s=%.3f", code, time.monotonic() - self._began)
        self._logger.removeHandler(self)
        self._logger.setLevel(logging.NOTSET)
        self._logger.propagate = True
        os.close(self._descriptor)
        self._descriptor = None
        say(f"batten: debug log: {self.path}")


def _shortened(word: str) -> str:
    """A word of the command line; a prompt or another text by its size only."""
    if len(word) > _LONGEST_WORD or any(letter.isspace() for letter in word):
        return f"<{len(word)} characters>"
    return word
