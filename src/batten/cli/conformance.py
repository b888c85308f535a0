"""`batten conformance`: checks whether a program conforms to a protocol, and reports."""

import asyncio
import os
import re
import shutil
import sys
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence

from batten.cli.junit import open_report
from batten.cli.parsing import Parser, UsageError, place
from batten.conformance import report, suites
from batten.conformance.bench import PLACES
from batten.conformance.check import Check
from batten.conformance.runner import Result, Runner
from batten.conformance.subject import SILENT
from batten.contract.errors import BattenError, CallerError
from batten.contract.numbers import parse_number
from batten.contract.outcomes import exit_code
from batten.serve.output import put, say, warn

NOT_CONFORMING = 1
_PATIENCE_S = 10.0
_MOST_SECONDS = 3600
_JOBS = 3
_MOST_JOBS = 64
_USAGE = "batten conformance PROTOCOL [options] -- COMMAND [ARGUMENT ...]"
_ABOUT = """\
Starts COMMAND once for each check, speaks PROTOCOL with it over its standard input and output, and
judges what it says. A model on loopback is offered in the usual variables (OPENAI_BASE_URL,
ANTHROPIC_BASE_URL, HEDDLE_BASE_URL, ...). COMMAND is started in a new directory; in its words,
{here} is the present one, {workspace} and {home} are those of the check, {model_url} is the
address of its model, and {scenario} a file with the model's words as a scripted scenario.
Exit code: 0 if all that must be is so, 1 if not, 64 for a wrong command line."""


def run_conformance(argv: list[str]) -> int:
    """Run the selected checks; the exit code."""
    own, command = _split(argv)
    try:
        options = _options(own, command)
        chosen = suites.checks(options.protocol, options.only)
        if options.list:
            return _list(chosen)
        _check_command(command)
        return asyncio.run(_run(options, chosen, command))
    except SystemExit as left:  # argparse exits only after --help
        return int(left.code or 0)
    except KeyboardInterrupt:
        warn("interrupted")
        return exit_code("interrupted")
    except BrokenPipeError as error:
        warn(f"standard output is not complete: {error.strerror}")
        return NOT_CONFORMING
    except (BattenError, OSError) as error:
        say(f"batten: {error}")
        return exit_code("usage") if isinstance(error, CallerError) else NOT_CONFORMING


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Our own arguments, and those after the first `--`."""
    if "--" not in argv:
        return argv, []
    place = argv.index("--")
    return argv[:place], argv[place + 1 :]


def _options(own: list[str], command: list[str]) -> Namespace:
    try:
        return command_line().parse_args(own)
    except UsageError as error:
        if command or "unrecognized" not in str(error):
            raise
        raise UsageError(f"{error}\nCOMMAND stands behind `--`: {_USAGE}") from None


def command_line() -> Parser:
    made = Parser(prog="batten conformance", usage=_USAGE, description=_ABOUT)
    made.add_argument("protocol", choices=suites.PROTOCOLS, metavar="PROTOCOL")
    made.add_argument("--only", default="*", metavar="GLOB", help="checks with ids like this")
    made.add_argument("--list", action="store_true", help="show the checks and run none")
    made.add_argument("--json", action="store_true", help="print the report as one JSON object")
    made.add_argument("--junit", type=place, metavar="FILE", help="also write a JUnit report")
    made.add_argument("--strict", action="store_true", help="what should be must be")
    made.add_argument("--no-model", action="store_true", help="skip checks that need a model")
    made.add_argument(
        "--timeout",
        type=_seconds,
        default=_PATIENCE_S,
        metavar="SECONDS",
        help="for each answer (10)",
    )
    made.add_argument(
        "--jobs", type=_jobs, default=_JOBS, metavar="N", help="so many checks at once (3)"
    )
    return made


def _seconds(text: str) -> float:
    seconds = parse_number(text) or 0.0
    if not 0 < seconds <= _MOST_SECONDS:
        raise ArgumentTypeError(f"{text!r} is no number of seconds up to {_MOST_SECONDS}")
    return seconds


def _jobs(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= _MOST_JOBS):
        raise ArgumentTypeError(f"{text!r} is no number from 1 to {_MOST_JOBS}")
    return int(text)


def _check_command(command: Sequence[str]) -> None:
    if not command:
        raise UsageError(f"COMMAND is missing; usage: {_USAGE}")
    if shutil.which(command[0]) is None:
        raise UsageError(f"{command[0]!r} is no program that can be started")
    for word in command[1:]:
        for name in set(re.findall(r"\{[a-z_]+\}", word)) - set(PLACES):
            say(f"batten: {name} stands for nothing here; known are {', '.join(PLACES)}")
        if not os.path.isabs(word) and os.path.isfile(word):
            say(f"batten: COMMAND is started elsewhere: for {word} write {{here}}/{word}")


def _list(checks: Sequence[Check]) -> int:
    for check in checks:
        put(f"{check.id} ({check.level}; {check.section}): {check.says}")
    return 0


async def _run(options: Namespace, checks: Sequence[Check], command: list[str]) -> int:
    progress = _Progress(len(checks), strict=options.strict, quiet=options.json)
    runner = Runner(
        [os.path.abspath(shutil.which(command[0]) or command[0]), *command[1:]],
        patience_s=options.timeout,
        jobs=options.jobs,
        with_model=not options.no_model,
        tell=progress.tell,
    )
    junit = open_report(options.junit) if options.junit else None
    begun = time.monotonic()
    try:
        results = await runner.run(checks, suites.gate(options.protocol))
    except BaseExceptionGroup as failures:
        # Checks run concurrently; the error is that their output cannot be written.
        raise failures.exceptions[0] from None
    made = report.Report(
        protocol=options.protocol,
        command=tuple(command),
        strict=options.strict,
        results=tuple(results),
        seconds=round(time.monotonic() - begun, 3),
    )
    if junit is not None:
        with junit:
            junit.write(report.to_junit(made))
    put(report.to_json(made).decode() if options.json else report.summary(made))
    sys.stdout.flush()
    if any(one.reason.startswith(SILENT) for one in results):
        say(f"batten: who needs more than {options.timeout:g} s is given it with --timeout SECONDS")
    return NOT_CONFORMING if made.counts.failed else 0


class _Progress:
    """Prints each check as it ends; on a terminal, also a counter."""

    def __init__(self, total: int, *, strict: bool, quiet: bool) -> None:
        self._total = total
        self._strict = strict
        self._quiet = quiet
        self._done = 0
        self._terminal = sys.stderr.isatty()

    def tell(self, result: Result) -> None:
        self._done += 1
        self._show("")
        if not self._quiet:
            for line in report.lines(result, self._strict):
                put(line)
                sys.stdout.flush()
        if self._done < self._total:
            self._show(f"{self._done} of {self._total} checks")

    def _show(self, text: str) -> None:
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
