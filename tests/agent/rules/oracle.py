"""What bash runs: a line is run with stubs for programs, and everything that ran is returned."""

import os
import re
import shlex
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from batten.agent.rules.shell import HOLE, NAMES, SimpleCommand

STUBS = ("a", "b", "c", "d", "ls", "git", "rm", "n")
_STUB = """#!/bin/dash
end=$(printf '\\1')
printf '%s\\0' "${0##*/}" "$@" "$end" >> "$LOG"
exit %STATUS%
"""
REAL = ("env", "xargs", "timeout", "nice", "nohup", "bash", "stdbuf", "find", "setsid")
"""Programs that run others, as they are on this machine."""
_BUILTIN = re.compile(
    r"(?:echo|printf|cd|eval|command|builtin|exec|true|false|test|\[|:|set)(?=[ \n]|$)"
)
SEPARATOR = "\x1f"


class Oracle:
    """Runs lines with bash in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self._programs = folder / "programs"
        self._place = folder / "place"
        self._folder = folder
        self._log = folder / "log"
        self._trace = folder / "trace"
        self._lines = 0
        self._programs.mkdir()
        self._place.mkdir()
        for name in STUBS:
            stub = self._programs / name
            stub.write_text(_STUB.replace("%STATUS%", "1" if name == "n" else "0"))
            stub.chmod(0o755)
        for name in REAL:
            (self._programs / name).symlink_to(f"/usr/bin/{name}")

    @property
    def place(self) -> str:
        return str(self._place)

    def written(self) -> set[str]:
        """What is in the folder where the last line ran."""
        return {entry.name for entry in self._place.iterdir()}

    def ran(self, line: str) -> list[tuple[str, ...]]:
        """The arguments of every program and of every common builtin that the line ran."""
        for left in self._place.iterdir():
            left.unlink()
        (self._place / "one.txt").touch()
        # New files: what an earlier line left running writes to others.
        self._log.unlink(missing_ok=True)
        self._trace.unlink(missing_ok=True)
        self._lines += 1
        self._log = self._folder / f"log{self._lines}"
        self._trace = self._folder / f"trace{self._lines}"
        self._log.touch()
        self._trace.touch()
        environment = {
            "PATH": str(self._programs),
            "HOME": str(self._place),
            "LOG": str(self._log),
            "LC_ALL": "C.UTF-8",
        }
        prepared = (
            f"ulimit -f 2000; exec 9>'{self._trace}'; BASH_XTRACEFD=9; PS4=$'\\001'; set -x\n"
        )
        process = subprocess.Popen(
            ["/bin/bash", "-c", prepared + line],
            cwd=self._place,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.7)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return [*self._logged(), *self._traced()]

    def _logged(self) -> list[tuple[str, ...]]:
        records = self._log.read_bytes().decode(errors="surrogateescape").split("\1\0")
        return [tuple(record.split("\0")[:-1]) for record in records if record.endswith("\0")]

    def _traced(self) -> list[tuple[str, ...]]:
        """Builtins, from the trace. Those that bash quotes in its own way are left out."""
        found: list[tuple[str, ...]] = []
        for record in self._trace.read_text(errors="surrogateescape").split("\x01"):
            if "$'" in record or not _BUILTIN.match(record):
                continue
            try:
                found.append(tuple(shlex.split(record)))
            except ValueError:
                continue
        return found


def fits(command: SimpleCommand, arguments: tuple[str, ...]) -> bool:
    """Whether the arguments may be those of a command that was read."""
    pattern = "".join(map(_pattern, command.words))
    text = "".join(SEPARATOR + argument for argument in arguments)
    return re.fullmatch(pattern, text, re.DOTALL) is not None


def _pattern(word: str) -> str:
    parts = re.split(f"([{HOLE}{NAMES}])", word)
    wild = {HOLE: ".*", NAMES: "[^/]*"}
    if parts[0].startswith("~"):
        # Somebody's home.
        parts = [HOLE, parts[0].lstrip("~"), *parts[1:]]
    inner = SEPARATOR + "".join(wild.get(part, re.escape(part)) for part in parts)
    if HOLE in word:
        return f"(?:{inner})*"
    return f"(?:{inner})+" if NAMES in word else inner
