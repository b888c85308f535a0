"""A parser of flags that raises instead of exiting, suggests, and fits the terminal."""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from batten.contract.errors import CallerError

_UNKNOWN = "unrecognized arguments: "
"""The beginning of argparse's message about words that no flag takes."""


class UsageError(CallerError):
    """The command line is wrong; exit code 64."""

    code = "usage"


class _Help(argparse.HelpFormatter):
    """Sets the width itself: the default imports `shutil` for it, which takes long."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=columns())


def columns() -> int:
    """The width of texts for people: that of the terminal within reason, else 80."""
    try:
        return min(max(40, os.get_terminal_size(1).columns), 100)
    except OSError:
        return 80


class Parser(argparse.ArgumentParser):
    """Raises `UsageError` instead of exiting, so that all errors are reported in one place."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how, formatter_class=_Help, allow_abbrev=False, add_help=False)
        # argparse's own spelling is no sentence of ours; headings are capitalized like the others.
        self._optionals.title = "Flags"
        self._positionals.title = "Arguments"
        self.add_argument("-h", "--help", action="help", help="show this text")
        self._others: list[str] = []

    def stand_in_for(self, command: "Parser") -> None:
        """Parse the flags that `command` left over, in its name; its own may be what was meant."""
        self.prog = command.prog
        self._others = list(command._option_string_actions)

    def print_help(self, file: Any = None) -> None:
        """Exits with 1 if it cannot be written; argparse itself would say nothing of it."""
        try:
            sys.stdout.write(self.format_help())
            sys.stdout.flush()
        except OSError as error:
            from batten.serve.output import warn

            warn(f"standard output is not complete: {error.strerror}")
            raise SystemExit(1) from error

    def error(self, message: str) -> NoReturn:
        if message.startswith(_UNKNOWN):
            message += self._suggestion(message.removeprefix(_UNKNOWN).split())
        raise UsageError(f"{message}\ntry: {self.prog} --help")

    def _suggestion(self, unknown: list[str]) -> str:
        """The nearest flag to each unknown one, in words; empty if none is near."""
        from batten.cli.suggesting import nearest

        names = (*self._option_string_actions, *self._others)
        known = [name for name in names if name.startswith("--")]
        words = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        near = [name for word in words if (name := nearest(word, known)) is not None]
        return f"; did you mean {' '.join(near)}?" if near else ""

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Take the value of `--flag=--` as it is; argparse would make an empty list of it."""
        if arg_strings == ["--"] and action.option_strings and action.nargs is None:
            value = self._get_value(action, "--")
            self._check_value(action, value)
            return value
        return super()._get_values(action, arg_strings)

    def booleans(self) -> set[str]:
        """The flags without a value."""
        plain = (a for a in self._actions if isinstance(a, argparse._StoreTrueAction))  # pyright: ignore[reportPrivateUsage]  # argparse has no public name for it
        return {name for action in plain for name in action.option_strings}


def place(text: str) -> str:
    """A path. An empty one, often an unset variable of a script, must not mean another place."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the path is empty")
    return text


def agrees(question: str, nobody: str) -> bool:
    """Ask the user at the terminal; raises `UsageError` with `nobody` if there is none."""
    if not os.isatty(0):
        raise UsageError(nobody)

    def ask() -> str:
        print(f"{question} [y/N] ", end="", flush=True)
        return sys.stdin.readline()

    return typed(ask).strip().lower() in ("y", "yes")


def typed(read: Callable[[], str]) -> str:
    """What a person types. Ctrl-C ends the wait; an event loop's handler would only note it."""
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):  # ignored, as in the background of a script
        return read()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return read()
    finally:
        signal.signal(signal.SIGINT, before)


def add_debugging(made: argparse.ArgumentParser) -> None:
    """The flags that every command has."""
    made.add_argument("--debug", action="store_true", help="write a log file; its name comes last")
    made.add_argument("--debug-file", type=place, metavar="FILE", help="write the log here")


def add_server(made: argparse.ArgumentParser) -> None:
    """The flags of commands that can ask a service."""
    made.add_argument("--server", metavar="URL", help="ask this service; default: BATTEN_SERVER")
    made.add_argument(
        "--server-key-file", metavar="FILE", help="its key; default: BATTEN_SERVER_KEY"
    )
