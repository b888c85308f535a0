"""Shows long output through the reader's pager, if standard output is a terminal."""

import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import IO

from batten.serve.terminal.ability import is_smart

_USUAL = "less -R"


def pager_command(environ: Mapping[str, str]) -> list[str]:
    """`$BATTEN_PAGER`, `$PAGER`, or `less -R`; empty for none."""
    named = environ.get("BATTEN_PAGER", environ.get("PAGER", _USUAL)).strip()
    try:
        words = shlex.split(named)
    except ValueError:
        return []
    if not words or words == ["cat"] or shutil.which(words[0]) is None:
        return []
    return words


@contextmanager
def paged(environ: Mapping[str, str], *, wanted: bool = True) -> Generator[IO[bytes], None, None]:
    """Where to write: the pager's input, or standard output.

    A pager that quits early is no error.
    """
    command = pager_command(environ) if wanted and is_smart(1, environ) else []
    if not command:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    # As in git: colours as they are, no pager for less than a screen, the text stays after it.
    settings = {"LESS": environ.get("LESS", "FRX"), "LV": environ.get("LV", "-c")}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env={**environ, **settings}) as process:
        assert process.stdin is not None
        # Ctrl-C belongs to the pager while it runs.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with suppress(BrokenPipeError):
                yield process.stdin
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
