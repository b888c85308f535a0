"""The command line: wiring and nothing else."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal
    from types import ModuleType

    from batten.tools.contract import Tool

COMMANDS = {
    "headless": "speak a protocol on standard input and output",
    "runs": "list runs, newest first",
    "show": "a readable timeline of a run",
    "events": "the stored events of a run",
    "artifacts": "what a run produced, or one artifact's body",
    "diff": "what a run changed",
    "revert": "undo what a run changed",
    "requests": "questions runs wait for",
    "answer": "answer a question",
    "verify": "check the journal for damage",
    "prune": "remove the beginning of old runs",
    "scenario": "validate or run a scripted scenario",
    "conformance": "check a program that speaks heddle, maestro or acp",
    "trust": "turn on what a workspace brings",
}

FLAG_VARIABLES = {
    f"--{name}": f"BATTEN_{name.upper().replace('-', '_')}"
    for name in (
        *("auto-allow", "no-permissions", "no-hooks", "no-skills", "no-mcp", "no-plugins"),
        *("no-sub-agent", "verbose"),
    )
}
"""Flags that a variable can give too: `BATTEN_NO_HOOKS=1`."""

_CANCELLED = 124


def run(
    argv: list[str],
    *,
    tools: "Sequence[Tool]" = (),
    leave: "Callable[[int], object] | None" = None,
) -> int:
    """Run one invocation; its exit code. Everything it started has ended when this returns.

    `tools` are offered to the model beside our own: for programs that embed this one. `leave`
    ends the process, and is called as soon as all is said and closed.
    """
    try:
        "".join(argv).encode()
    except UnicodeEncodeError:
        from batten.serve.output import say

        say("batten: the command line is not UTF-8 text")
        return 64
    if argv[:1] == ["headless"]:
        return int(load("headless").run_headless(argv[1:], tools))
    if argv[:1] == ["conformance"]:
        return int(load("conformance").run_conformance(argv[1:]))
    if argv and argv[0] in COMMANDS:
        return int(load("commands").run_command(argv))
    held = _HeldSignals()
    try:
        if _may_be_claude(argv):
            from batten.cli.claude_mode import is_for_us, run_claude

            if is_for_us(argv):
                return run_claude(argv, tools, leave, ready=held.release)
        from batten.cli.print_mode import run_print

        return run_print(argv, tools, leave, ready=held.release)
    finally:
        held.release()


def _may_be_claude(argv: list[str]) -> bool:
    """Whether it is worth a look if we stand in for Claude Code's CLI."""
    import os

    named = any(word.startswith("--compat") for word in argv)
    return named or os.environ.get("CLAUDE_CODE_ENTRYPOINT", "").startswith("sdk-")


def load(name: str) -> "ModuleType":
    """A module of this package."""
    from importlib import import_module

    held = _HeldSignals()
    try:
        return import_module(f"batten.cli.{name}")
    finally:
        held.release()


class _HeldSignals:
    """An interrupt waits while modules are loaded: extension modules that are left half loaded
    take the process down with them.
    """

    def __init__(self) -> None:
        import signal

        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, ending_signals())

    def release(self) -> None:
        import signal

        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


def current_directory() -> str:
    """Where relative paths start; empty if that directory is gone."""
    import os

    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def ending_signals() -> "list[signal.Signals]":
    """What asks us to end. A hang-up that our starter has us ignore (nohup) stays ignored."""
    import signal

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


def _interrupt(number: int, frame: object) -> None:
    """A request to end, before there is a loop to take it: the same as Ctrl-C."""
    raise KeyboardInterrupt


def main() -> None:
    """The console script: leaves at once when the work is done, since nothing is left to clean."""
    import signal

    _occupy_standard_descriptors()
    _prepare_streams()
    for number in ending_signals():
        if number != signal.SIGINT:  # which interrupts as it is, and asyncio minds who takes it
            signal.signal(number, _interrupt)
    try:
        code = run(sys.argv[1:], leave=_leave)
    except KeyboardInterrupt:  # so early that nothing has begun
        code = _CANCELLED
    _leave(code)


def _leave(code: int) -> None:
    import os

    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            code = code or 1  # whoever reads has gone away
    os._exit(code)


def _occupy_standard_descriptors() -> None:
    """A descriptor that was closed for us must not become that of a file we open.

    What takes its place cannot be read or written, so that using it is still an error.
    """
    import os

    for descriptor, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, mode)


def _prepare_streams() -> None:
    """Python has no stream for a descriptor that was closed, and may not know every character."""
    import os

    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
