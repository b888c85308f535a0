"""`batten headless`: a protocol on standard input and output. The client is greeted before the
agent, its tools and the store are loaded.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from batten.cli import ending_signals
from batten.contract.errors import BattenError
from batten.contract.outcomes import Outcome, exit_code
from batten.serve.hosting import Host, Hosted, Wanted
from batten.serve.output import say
from batten.serve.stdio import STALLED_S, Stdio, Surface

if TYPE_CHECKING:
    from argparse import Namespace

    from batten.cli.hosting import SessionHost
    from batten.journal.contract import Journal
    from batten.tools.contract import Tool

SURFACES = {
    "heddle": "batten.serve.heddle.surface:HeddleSurface",
    "maestro": "batten.serve.maestro.surface:MaestroSurface",
    "acp": "batten.serve.acp.surface:AcpSurface",
}
"""What speaks each protocol: module and class, loaded when it is asked for."""

_PLAIN = ("--protocol", "--model", "--workspace")
"""Flags that are read without the parser, which takes long to load."""

Make = Callable[[Stdio, Host, Mapping[str, str]], Surface]


def run_headless(argv: list[str], tools: "Sequence[Tool]" = ()) -> int:
    """Speak the protocol that is asked for until its client is done; the exit code."""
    options: Namespace | None = None
    try:
        plain = _plain(argv)
        protocol = plain.get("--protocol", "")
        if protocol not in SURFACES:
            # What is wrong with flags is said before anything is read.
            options = _parsed(argv, os.environ)
            protocol = options.protocol
    except BattenError as error:
        _refuse(argv, error)
        return exit_code("usage")
    except SystemExit as left:  # argparse leaves by itself only after --help
        return int(left.code or 0)
    make = _maker(protocol)
    with Stdio(ending_signals()) as stdio:
        environ = dict(os.environ)
        parse = partial(_parsed, argv, environ)
        host = LazyHost(parse, options, environ, tools, own_process=True)
        host.tell(plain, options)
        try:
            return asyncio.run(_converse(stdio, make(stdio, host, host.environ)))
        except (asyncio.CancelledError, KeyboardInterrupt):
            return exit_code("cancelled")
        finally:
            host.close()


async def speak(
    protocol: str, argv: list[str], environ: dict[str, str], streams: tuple[int, int]
) -> int:
    """Speak a protocol on these descriptors, as a task among others of this process; the exit
    code. The descriptors are closed, and the process is otherwise left as it is.
    """
    from batten.cli.arguments import UsageError

    parse = partial(_parsed, ["--protocol", protocol, *argv], environ)
    with Stdio(streams=streams) as stdio:
        host = LazyHost(parse, None, environ, ())
        surface = _maker(protocol)(stdio, host, environ)
        try:
            host.tell({}, host.options)
            return await _converse(stdio, surface)
        except UsageError as error:
            surface.fail("usage", str(error))
            return await stdio.leave("usage", exit_code("usage"))
        finally:
            host.close()


def _named_model(plain: dict[str, str], options: "Namespace | None") -> str:
    """The model that the flags name; empty if they name none."""
    if options is None or not options.model:
        return plain.get("--model", "")
    name = str(options.model[0])
    return f"{options.provider}/{name}" if options.provider and "/" not in name else name


def _maker(protocol: str) -> Make:
    module, _, name = SURFACES[protocol].partition(":")
    make: Make = getattr(import_module(module), name)
    return make


def _refuse(argv: list[str], error: BattenError) -> None:
    """Say what is wrong with the flags, also as the protocol says it that they ask for."""
    asked = next((name for name in SURFACES if name in argv or f"--protocol={name}" in argv), None)
    if asked is not None:
        with Stdio() as stdio:
            host = LazyHost(partial(_parsed, argv, os.environ), None, {}, ())
            _maker(asked)(stdio, host, {}).fail("usage", str(error))
            stdio.output.drain(STALLED_S)
    say(f"batten: {error}")


async def _converse(stdio: Stdio, surface: Surface) -> int:
    outcome: Outcome = "completed"
    try:
        code = await stdio.serve(surface)
    except BattenError as error:
        from batten.cli.print_mode import outcome_of

        outcome = outcome_of(error)
        code = exit_code(outcome)
        surface.fail(outcome, str(error))
        say(f"batten: {error}")
    except Exception as error:  # a bug: said in both places before everything ends
        import traceback

        outcome, code = "internal", exit_code("internal")
        surface.fail(outcome, f"{type(error).__name__}: {error}")
        say("".join(traceback.format_exception(error)))
    return await stdio.leave(outcome, code)


class LazyHost:
    """Loads what opens sessions when the first one is opened."""

    model = workspace = resume = ""
    tools: "tuple[str, ...] | None" = None
    max_turns: int | None = None

    def __init__(
        self,
        parse: "Callable[[], Namespace]",
        options: "Namespace | None",
        environ: dict[str, str],
        own_tools: "Sequence[Tool]",
        *,
        own_process: bool = False,
    ) -> None:
        self.environ = environ
        self._parse = parse
        self._options = options
        self._own_tools = own_tools
        self._own_process = own_process
        self._host: SessionHost | None = None

    def tell(self, plain: dict[str, str], options: "Namespace | None") -> None:
        """What the flags say that is needed before anything is loaded."""
        self.model = _named_model(plain, options)
        self.workspace = plain.get("--workspace") or getattr(options, "workspace", None) or ""
        self.resume = getattr(options, "resume", None) or ""
        if options is not None:
            from batten.cli.arguments import named_tools

            self.tools, self.max_turns = named_tools(options), options.max_turns

    @property
    def options(self) -> "Namespace":
        """The flags, read when somebody needs more of them than the model's name."""
        if self._options is None:
            self._options = self._parse()
        return self._options

    @property
    def journal(self) -> "Journal":
        return self._loaded().journal

    async def open(self, wanted: Wanted) -> Hosted:
        return await self._loaded().open(wanted)

    def close(self) -> None:
        if self._host is not None:
            self._host.close()

    def _loaded(self) -> "SessionHost":
        if self._host is None:
            from batten.cli.hosting import SessionHost

            self._host = SessionHost(
                self.options, self.environ, self._own_tools, own_process=self._own_process
            )
        return self._host


def _plain(argv: list[str]) -> dict[str, str]:
    """The flags, if they are all so plain that they need no parser; else nothing."""
    found: dict[str, str] = {}
    words = iter(argv)
    for word in words:
        name, equals, value = word.partition("=")
        value = value if equals else next(words, "")
        if name not in _PLAIN or name in found or not value or value.startswith("-"):
            return {}
        found[name] = value
    return found


def _parsed(argv: list[str], environ: Mapping[str, str]) -> "Namespace":
    from batten.cli.arguments import parse_headless

    return parse_headless(argv, environ)
