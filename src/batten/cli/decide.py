"""`batten decide`: a panel of agents decides a question, and people or programs watch it."""

import asyncio
import os
import re
import signal
import sys
from argparse import Namespace
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from batten.cli import current_directory
from batten.cli.changes import Proposed, proposed_changes, review_run
from batten.cli.parsing import UsageError
from batten.contract.envelope import decode
from batten.contract.errors import CallerError, Conflict
from batten.contract.facts import TERMINAL
from batten.contract.outcomes import exit_code
from batten.journal.contract import Journal, Stored
from batten.serve.output import put, warn
from batten.serve.terminal.printers import printer_for
from batten.serve.terminal.transcript import Transcript
from batten.settings.regular import read_regular
from batten.wiring.spec import SessionSpec

if TYPE_CHECKING:
    from batten.control.coordination.panel import Decided, Panel, PanelAgent
    from batten.control.coordination.runtime import Runtime
    from batten.coordination.policy.policy import PolicyDescriptor
    from batten.wiring.opener import SessionOpener

_DECLINED = 3
_UNDECIDED = 4
_MOST_AGENTS = 50
_LARGEST_ABOUT = 256 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class _Role(Struct, frozen=True, forbid_unknown_fields=True):
    instructions: str = ""
    model: str = ""


async def decide(options: Namespace) -> int:
    """Hold the panel; the exit code tells the decision."""
    from importlib.util import find_spec

    if find_spec("macp") is None:
        raise CallerError("panels need more packages: install batten[runtime]", code="config")
    panel = _panel(options)
    proposed: Proposed | None = None
    if options.apply:
        proposed = await proposed_changes(options.apply)
        panel = replace(panel, about=f"{panel.about}\n{_shown(proposed)}".lstrip())
    base = SessionSpec(
        environ=dict(os.environ),
        cwd=current_directory(),
        warn=warn,
        workspace=options.workspace,
        models=(options.model,) if options.model else (),
        bare=options.bare,
    )
    from batten.wiring.opener import SessionOpener

    opener = SessionOpener(base)
    was_ended = _ends_with_sigterm()
    try:
        decided = await _hold(panel, opener, options)
        applied = await _applied(decided, proposed)
    except asyncio.CancelledError:
        if not was_ended.is_set():
            raise
        warn("cancelled: the panel came to no decision")
        return exit_code("cancelled")
    finally:
        opener.close()
    return _tell(decided, applied, options)


def _shown(proposed: Proposed) -> str:
    if len(proposed.diff) > _LARGEST_ABOUT:
        raise CallerError(f"{proposed.run_id} proposes too much for one panel to read")
    return proposed.diff.decode("utf-8", "replace")


async def _applied(decided: "Decided", proposed: Proposed | None) -> list[str]:
    """Make the changes that the panel has approved, if they are still those it was shown."""
    if proposed is None or decided.outcome != "approved":
        return []
    now = await proposed_changes(proposed.run_id)
    if now.artifact_ids != proposed.artifact_ids:
        raise Conflict(f"{proposed.run_id} proposes other changes than the panel approved")
    return await review_run(
        proposed.run_id,
        "applied",
        by=f"panel:{decided.session_id}",
        reason=f"{decided.action} by {decided.by}: {decided.reason}",
    )


def _ends_with_sigterm() -> asyncio.Event:
    """Let SIGTERM cancel the panel; set once it has."""
    task, was_ended = asyncio.current_task(), asyncio.Event()
    assert task is not None

    def end() -> None:
        was_ended.set()
        task.cancel()

    with suppress(RuntimeError, ValueError):  # not in the main thread, where nobody sends signals
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
    return was_ended


def _panel(options: Namespace) -> "Panel":
    from batten.control.coordination.chair import MODES
    from batten.control.coordination.panel import Panel
    from batten.coordination.policy.policy import DEFAULT

    if not options.question.strip():
        raise UsageError("the question must not be blank")
    if not 1 <= options.timeout <= 86_400:
        raise UsageError("--timeout takes 1 to 86400 seconds")
    if options.rounds < 1:
        raise UsageError("--rounds takes 1 or more")
    policy = _policy(options.policy) if options.policy else DEFAULT
    mode = MODES[options.mode or "decision"]
    if options.mode is None and policy.mode != "*":
        mode = policy.mode
    if mode not in MODES.values():
        raise UsageError(f"{options.policy} is for {mode}, in which no question is decided")
    if policy.mode not in ("*", mode):
        raise UsageError(f"{options.policy} is for {policy.mode}, not for --mode {options.mode}")
    agents = _agents(options.agents, _roles(options.roles) if options.roles else {})
    return Panel(
        question=options.question.strip(),
        agents=agents,
        connected=_connected(options, {agent.name for agent in agents}),
        policy=policy,
        mode=mode,
        seconds=options.timeout,
        rounds=options.rounds,
        about=_about(options.about) if options.about else "",
    )


def _policy(path: str) -> "PolicyDescriptor":
    from batten.control.coordination.registries import read_policy_file
    from batten.coordination.registry import PolicyRegistry
    from batten.coordination.rejection import Rejection

    policy = read_policy_file(path)
    try:
        PolicyRegistry().register(policy)
    except Rejection as rejection:
        raise CallerError(f"{path}: {rejection}", code="config") from rejection
    return policy


def _agents(text: str, roles: dict[str, _Role]) -> "tuple[PanelAgent, ...]":
    from batten.control.coordination.chair import CHAIR
    from batten.control.coordination.panel import PanelAgent

    agents: dict[str, PanelAgent] = {}
    for part in text.split(","):
        name, _, model = (word.strip() for word in part.partition("="))
        if _NAME.fullmatch(name) is None:
            raise UsageError(f"--agents: {part.strip()!r} is no NAME or NAME=MODEL")
        if name == CHAIR:
            raise UsageError(f"--agents: {CHAIR} is the chair, which has no vote")
        if name in agents:
            raise UsageError(f"--agents: {name} is named twice")
        role = roles.get(name, _Role())
        agents[name] = PanelAgent(
            name=name, model=model or role.model, instructions=role.instructions
        )
    if len(agents) > _MOST_AGENTS:
        raise UsageError(f"--agents takes {_MOST_AGENTS} at most, not {len(agents)}")
    for name in roles.keys() - agents.keys():
        raise UsageError(f"--roles names {name}, who is not among --agents")
    return tuple(agents.values())


def _connected(options: Namespace, agents: set[str]) -> tuple[str, ...]:
    """The members that are other programs."""
    from batten.control.coordination.chair import CHAIR

    if not options.connected:
        if options.bind or options.tokens:
            raise UsageError("--bind and --tokens are for members that --connected names")
        return ()
    names = tuple(name.strip() for name in options.connected.split(","))
    for name in names:
        if not name or name in agents or name == CHAIR or names.count(name) > 1:
            raise UsageError(f"--connected: {name!r} is empty, named twice, or the chair")
    if len(names) + len(agents) > _MOST_AGENTS:
        raise UsageError(f"a panel has {_MOST_AGENTS} members at most")
    return names


def _roles(path: str) -> dict[str, _Role]:
    try:
        body = read_regular(path, _LARGEST_ABOUT, pipes=True)
        found = msgspec.json.decode(body, type=dict[str, str | _Role])
    except OSError as error:
        raise CallerError(
            f"--roles: cannot read {path}: {error.strerror}", code="config"
        ) from error
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise CallerError(f"--roles: {path}: {error}", code="config") from error
    return {name: _Role(one) if isinstance(one, str) else one for name, one in found.items()}


def _about(path: str) -> str:
    try:
        if path == "-":
            data = sys.stdin.buffer.read(_LARGEST_ABOUT + 1)
        else:
            data = read_regular(path, _LARGEST_ABOUT + 1, pipes=True)
    except OSError as error:
        raise CallerError(
            f"--about: cannot read {path}: {error.strerror}", code="config"
        ) from error
    if len(data) > _LARGEST_ABOUT:
        raise UsageError(f"--about takes {_LARGEST_ABOUT} bytes at most: let the agents read files")
    return data.decode("utf-8", "replace")


async def _hold(panel: "Panel", opener: "SessionOpener", options: Namespace) -> "Decided":
    from batten.control.coordination.panel import hold

    show = _show_json if options.json else _viewer(options)
    try:
        async with asyncio.TaskGroup() as group:

            def opened(session_id: str, run_id: str) -> None:
                group.create_task(_watch(opener.journal, run_id, show))

            runtime = _runtime(opener)
            async with _served(panel, runtime, opener, options) as is_served:
                return await hold(
                    panel, runtime, opener.open, opener.base, opened=opened, is_served=is_served
                )
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from failed


@asynccontextmanager
async def _served(
    panel: "Panel", runtime: "Runtime", opener: "SessionOpener", options: Namespace
) -> AsyncGenerator[bool]:
    """Serve the runtime to the panel's connected members, if it has any."""
    if not panel.connected:
        yield False
        return
    from batten.cli.runtime import authenticator_of, check_installed, listening_of
    from batten.serve.grpc.rates import Rates
    from batten.serve.grpc.server import serve_runtime

    check_installed()
    unset = dict.fromkeys(("jwt_issuer", "jwt_audience", "jwks", "tls_cert", "tls_key", "metrics"))
    shut = {"insecure": False, "open": False, "wants_token": ""}
    flags = Namespace(**unset, **shut, bind=options.bind, tokens=options.tokens)
    environ = opener.base.environ
    listening = listening_of(flags, environ)
    reserved = [agent.name for agent in panel.agents]
    authenticator = authenticator_of(flags, environ, opener.home, listening, reserved)
    if authenticator.allows_anyone:
        raise CallerError(
            "anybody could vote in a member's name: give --tokens, or make keys with `batten keys`",
            code="config",
        )
    async with serve_runtime(runtime, authenticator, Rates(), listening) as address:
        warn(f"{', '.join(panel.connected)} may connect to {address}")
        yield True


def _runtime(opener: "SessionOpener") -> "Runtime":
    from batten.control.coordination.records import Keeping
    from batten.control.coordination.runtime import Runtime
    from batten.redact.identity import recorded_identity
    from batten.redact.redactor import Redactor
    from batten.redact.seal import SealKey
    from batten.settings.control_plane import read_control_plane

    environ = opener.base.environ
    redactor = Redactor.from_environment(environ)
    keeping = Keeping(
        opener.journal,
        redactor,
        partial(SealKey.load, opener.home),
        read_control_plane(environ).macp_redact_patterns,
        recorded_identity(environ, redactor),
    )
    return Runtime(keeping)


async def _watch(journal: Journal, run_id: str, show: Callable[[Stored], None]) -> None:
    """Show each fact of the session as it is stored, to its end."""
    async with aclosing(journal.follow(run_id, after=-1)) as pages:
        async for page in pages:
            for stored in page:
                show(stored)
            sys.stdout.flush()
            if any(stored.type in TERMINAL for stored in page):
                return


def _show_json(stored: Stored) -> None:
    put(bytes(stored.body).decode())


def _viewer(options: Namespace) -> Callable[[Stored], None]:
    transcript = Transcript(verbose=options.verbose)
    printer = printer_for(1, os.environ, options.color, times=False)

    def show(stored: Stored) -> None:
        for line in transcript.lines(decode(stored.body)):
            sys.stdout.write(printer.rows(line))

    return show


def _tell(decided: "Decided", applied: list[str], options: Namespace) -> int:
    for name, why in decided.failures.items():
        warn(f"{name} fell silent: {why}")
    if options.json:
        result: dict[str, Any] = {"type": "result", **msgspec.to_builtins(decided)}
        if options.apply:
            result["applied"] = applied
        put(msgspec.json.encode(result).decode())
    else:
        by = f" by {decided.by}" if decided.by else ""
        put(f"{decided.outcome}{by}: {decided.reason}")
        for path in applied:
            put(f"applied {path}")
        put(f"session {decided.session_id}, run {decided.run_id}")
    if decided.outcome == "undecided":
        return _UNDECIDED
    return 0 if decided.outcome == "approved" else _DECLINED
