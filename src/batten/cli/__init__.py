"""The command line: wiring and nothing else."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batten.tools.contract import Tool

_COMMANDS = {
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
}


def run(argv: list[str], *, tools: "Sequence[Tool]" = ()) -> int:
    """Run one invocation; its exit code. Everything it started has ended when this returns.

    `tools` are offered to the model beside our own: for programs that embed this one.
    """
    if argv and argv[0] in _COMMANDS:
        from batten.cli.commands import run_command

        return run_command(argv)
    from batten.cli.print_mode import run_print

    return run_print(argv, tools)


def main() -> None:
    """The console script: leaves at once when the work is done, since nothing is left to clean."""
    import os

    code = run(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
