"""`batten headless`: serves a protocol on standard input and output.

The client is greeted before the agent, its tools and the store are loaded.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec.structs import replace

from batten.cli import FLAG_VARIABLES, current_directory, ending_signals
from batten.contract.errors import BattenError, NotFound
from batten.contract.outcomes import Outcome, exit_code, outcome_of_error
from batten.serve.output import redact_for_people, say, warn
from batten.serve.pace import STALLED_S
from batten.serve.stdio import Stdio, Surface
from batten.serve.words import redacting
from batten.wiring.opener import SessionOpener
from batten.wiring.spec import SessionSpec

if TYPE_CHECKING:
    from batten.cli.debugging import DebugLog
    from batten.sinks.beside import SinksBeside
    from batten.tools.contract import Tool

SURFACES = {
    "heddle": "batten.serve.heddle.surface:HeddleSurface",
    "maestro": "batten.serve.maestro.surface:MaestroSurface",
    "acp": "batten.serve.acp.surface:AcpSurface",
}
"""The module and class of each protocol's surface, imported on use."""

_OWN_SURFACES = {"hosted": "batten.serve.maestro.session_surface:SessionSurface"}
"""Of processes that other processes of ours start."""

_PLAIN = ("--protocol", "--model", "--workspace")
"""Flags that are read without argparse, which takes long to import."""

_TELL_WITHIN_S = 1.0
"""Less than a process has to end after its last output."""

Make = Callable[[Stdio, SessionOpener], Surface]


def run_headless(argv: list[str], tools: "Sequence[Tool]" = ()) -> int:
    """Serve the requested protocol until its client is done; the exit code."""
    environ = dict(os.environ)
    redact_for_people.set(redacting(environ))
    try:
        protocol, base, log = _plain(argv, environ) or _parsed(argv, environ)
    except BattenError as error:
        _refuse(argv, error)
        return exit_code("usage")
    except SystemExit as left:  # argparse exits only after --help
        return int(left.code or 0)
    code = serve_protocol(protocol, base, tools, environ)
    if log is not None:
        log.end(code)
    return code


def serve_protocol(
    protocol: str, base: SessionSpec, tools: "Sequence[Tool]", environ: Mapping[str, str]
) -> int:
    """Serve a protocol on standard input and output until its client is done; the exit code."""
    make = _maker(protocol)
    with Stdio(ending_signals(), environ=environ) as stdio:
        opener = SessionOpener(replace(base, own_tools=tuple(tools)), own_process=True)
        opener.after_open = beside = _Beside(opener)
        try:
            return asyncio.run(_converse(stdio, make(stdio, opener)))
        except (asyncio.CancelledError, KeyboardInterrupt):
            return exit_code("cancelled")
        finally:
            beside.end()
            _tell_sinks(opener)
            opener.close()


class _Beside:
    """Tells the sinks while sessions are open, if there are any; loads nothing otherwise."""

    def __init__(self, opener: SessionOpener) -> None:
        self._opener = opener
        self._sinks: SinksBeside | None = None

    def __call__(self) -> None:
        from batten.sinks.wanted import has_sinks

        opener = self._opener
        if self._sinks is None and has_sinks(opener.home, opener.base.environ, opener.sinks):
            from batten.sinks.beside import SinksBeside

            self._sinks = SinksBeside(opener)
            self._sinks.begin()

    def end(self) -> None:
        if self._sinks is not None:
            self._sinks.end()


def _tell_sinks(opener: SessionOpener) -> None:
    """Tell the sinks before the process ends, if there are any."""
    if not opener.may_have_told:
        return
    from batten.sinks.wanted import has_sinks

    if has_sinks(opener.home, opener.base.environ, opener.sinks):
        from batten.sinks.after_run import tell_sinks

        if problem := asyncio.run(tell_sinks(opener, at_most_s=_TELL_WITHIN_S)):
            warn(problem)


async def speak(protocol: str, base: SessionSpec, streams: tuple[int, int]) -> int:
    """Serve a protocol on these descriptors in an embedder's process; the exit code.

    Closes the descriptors and changes nothing else of the process.
    """
    with Stdio(streams=streams) as stdio:
        opener = SessionOpener(base)
        try:
            return await _converse(stdio, _maker(protocol)(stdio, opener))
        finally:
            opener.close()


async def refuse(protocol: str, problem: str, streams: tuple[int, int]) -> int:
    """Report on these descriptors why no session can be opened; the exit code."""
    with Stdio(streams=streams) as stdio:
        _unopened(protocol, stdio).fail("usage", problem)
        return await stdio.leave("usage", exit_code("usage"))


def _maker(protocol: str) -> Make:
    module, _, name = (SURFACES | _OWN_SURFACES)[protocol].partition(":")
    make: Make = getattr(import_module(module), name)
    return make


def _unopened(protocol: str, stdio: Stdio) -> Surface:
    """A surface to report an error with."""
    return _maker(protocol)(stdio, SessionOpener(SessionSpec(environ={})))


def _refuse(argv: list[str], error: BattenError) -> None:
    """Report wrong flags on standard error, and in the requested protocol if there is one."""
    asked = next((name for name in SURFACES if name in argv or f"--protocol={name}" in argv), None)
    if asked is not None:
        with Stdio() as stdio:
            _unopened(asked, stdio).fail("usage", str(error))
            stdio.output.drain(STALLED_S)
    warn(str(error))


async def _converse(stdio: Stdio, surface: Surface) -> int:
    outcome: Outcome = "completed"
    try:
        code = await stdio.serve(surface)
    except BattenError as error:
        outcome = outcome_of_error(error)
        code = exit_code(outcome)
        surface.fail(outcome, str(error))
        warn(str(error))
    except Exception as error:  # a bug: reported to the client and on standard error
        import traceback

        outcome, code = "internal", exit_code("internal")
        surface.fail(outcome, f"{type(error).__name__}: {error}")
        say("".join(traceback.format_exception(error)))
    return await stdio.leave(outcome, code)


def _plain(argv: list[str], environ: Mapping[str, str]) -> tuple[str, SessionSpec, None] | None:
    """The protocol and the specification, if all flags are in `_PLAIN`; else None."""
    if any(variable in environ for variable in FLAG_VARIABLES.values()):
        return None
    found: dict[str, str] = {}
    words = iter(argv)
    for word in words:
        name, equals, value = word.partition("=")
        value = value if equals else next(words, "")
        if name not in _PLAIN or name in found or not value or value.startswith("-"):
            return None
        found[name] = value
    if found.get("--protocol") not in SURFACES:
        return None
    model = found.get("--model")
    spec = SessionSpec(
        environ=environ,
        cwd=current_directory(),
        warn=warn,
        workspace=found.get("--workspace"),
        models=(model,) if model else (),
    )
    return found["--protocol"], spec, None


def _parsed(
    argv: list[str], environ: Mapping[str, str]
) -> "tuple[str, SessionSpec, DebugLog | None]":
    from batten.cli.arguments import parse_headless
    from batten.cli.options import headless_spec

    options = parse_headless(argv, environ)
    spec = headless_spec(options, environ)
    spec = asyncio.run(_named(spec)) if spec.resume else spec
    log = None
    if options.debug or options.debug_file is not None:
        from batten.cli.debugging import open_log

        log = open_log(options, argv, environ)
    return options.protocol, spec, log


async def _named(spec: SessionSpec) -> SessionSpec:
    """The specification with exact ids; an unknown name stays, and its session reports it."""
    from batten.cli.inspection import open_journal
    from batten.cli.names import with_exact_names

    try:
        with closing(open_journal(read_only=True)) as journal:
            return await with_exact_names(spec, journal)
    except NotFound:
        return spec
