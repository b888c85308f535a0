"""`batten serve` and `batten worker`."""

import asyncio
import logging
import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

from msgspec.structs import replace

from batten.cli import current_directory
from batten.cli.amounts import duration, size
from batten.cli.arguments import at_least_0, at_least_1, parse_headless, port
from batten.cli.options import headless_spec
from batten.cli.parsing import Parser, UsageError
from batten.cli.runtime import hosted_runtime
from batten.cli.tokens import why_token_is_wanted
from batten.contract.errors import BattenError, CallerError
from batten.contract.outcomes import exit_code, outcome_of_error
from batten.serve.output import redact_for_people, say
from batten.serve.words import redacting
from batten.wiring.home import absolute, batten_home, make_home
from batten.wiring.opener import SessionOpener
from batten.wiring.spec import ServerKind, SessionSpec, TaskGrants

if TYPE_CHECKING:
    from batten.control.retention import RetentionPolicy
    from batten.control.supervisor import Staff
    from batten.serve.http.limits import Limits
    from batten.serve.http.listener import Tls
    from batten.serve.http.logs import JsonLines
    from batten.settings.control_plane import ControlPlaneSettings

_HOST = "127.0.0.1"
_PORT = 8765
_RUNS = 16
_MEMORY_MIB = 1024
_STARTS_WITHIN_S = 15.0
_WORKER = (sys.executable, "-P", "-m", "batten", "worker", "--leave-with-stdin")
_KEYS = ("AUTH_API_KEYS", "RUNTIME_BEARER_TOKEN")
"""Variables that open the service or its runtime."""
_log = logging.getLogger("batten.http")


def serve_parser() -> Parser:
    made = Parser(
        prog="batten serve",
        usage="batten serve [--host HOST] [--port PORT] [--workers N] [FLAG ...]",
        description="Serve tasks and runs over HTTP; worker processes execute them. Any flag of"
        " `batten headless` sets what those runs may do.",
    )
    made.add_argument("--host", help=f"default: HOST, else {_HOST}")
    made.add_argument("--port", type=port, help=f"0 for a free one; default: PORT, else {_PORT}")
    made.add_argument("--workers", type=at_least_0, help="processes; default: one a core")
    made.add_argument(
        "--worker-memory",
        type=at_least_0,
        default=_MEMORY_MIB,
        metavar="MIB",
        help=f"replace a worker that needs more; default: {_MEMORY_MIB}, 0 for no limit",
    )
    made.add_argument("--tls-cert", metavar="FILE", help="serve TLS with this certificate")
    made.add_argument("--tls-key", metavar="FILE", help="and this key")
    made.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name besides localhost that a server on loopback answers to",
    )
    made.add_argument(
        "--open",
        action="store_true",
        help="serve every user of this machine, and commands, where no key is wanted",
    )
    made.add_argument(
        "--rate-limit",
        type=at_least_0,
        default=0,
        metavar="N",
        help="requests a minute of each key; default: no limit",
    )
    made.add_argument(
        "--max-runs",
        type=at_least_0,
        default=0,
        metavar="N",
        help="runs at once in all workers together; default: no limit",
    )
    made.add_argument(
        "--runtime-bind",
        metavar="HOST:PORT",
        help="serve `batten runtime` here; default: loopback, the port after --port",
    )
    made.add_argument("--no-runtime", action="store_true", help="serve no `batten runtime`")
    _add_runs(made)
    _add_grants(made)
    _add_retention(made)
    return made


def _add_retention(made: Parser) -> None:
    """Limits after which old data is removed; without one everything is kept."""
    made.add_argument(
        "--keep-runs-for", type=duration, metavar="AGE", help="then a run's events are removed: 30d"
    )
    made.add_argument("--keep-runs", type=at_least_0, default=0, metavar="N", help="runs at most")
    made.add_argument(
        "--keep-runs-size", type=size, default=0, metavar="SIZE", help="of the journal: 2G"
    )
    made.add_argument(
        "--keep-artifacts-for", type=duration, metavar="AGE", help="then artifacts are removed: 7d"
    )
    made.add_argument(
        "--keep-artifacts", type=at_least_0, default=0, metavar="N", help="artifacts at most"
    )
    made.add_argument(
        "--keep-artifacts-size", type=size, default=0, metavar="SIZE", help="of artifacts: 5G"
    )
    made.add_argument(
        "--retention-every", type=duration, metavar="AGE", help="how often to look; default: 15m"
    )


def worker_parser() -> Parser:
    made = Parser(
        prog="batten worker",
        usage="batten worker [--runs N] [FLAG ...]",
        description="Execute queued runs, for `batten serve --workers 0`. Any flag of"
        " `batten headless` sets what those runs may do.",
    )
    _add_runs(made)
    _add_grants(made)
    made.add_argument("--leave-with-stdin", action="store_true", help="end when stdin is closed")
    made.add_argument(
        "--for-callers",
        action="store_true",
        help="execute what `batten -p` of this user hands over, instead of queued runs",
    )
    return made


def _add_runs(made: Parser) -> None:
    made.add_argument(
        "--runs", type=at_least_1, default=_RUNS, help=f"runs at once in a worker; default: {_RUNS}"
    )


def _add_grants(made: Parser) -> None:
    """What clients may name in their tasks beyond what any task may; each can be given again."""
    made.add_argument(
        "--allow-mcp-servers",
        action="append",
        default=[],
        choices=get_args(ServerKind),
        metavar="KIND",
        help="tool servers that tasks may bring: `sandboxed` (programs, in the sandbox) or"
        " `remote` (URLs, at public addresses); default: none",
    )
    made.add_argument(
        "--allow-mcp-variable",
        action="append",
        default=[],
        metavar="NAME",
        help="a variable of the service that those servers may be given; default: none",
    )
    made.add_argument(
        "--allow-task-dir",
        action="append",
        default=[],
        metavar="DIR",
        help="tasks may name this directory and those below, and no others; default: all but"
        " home directories, their hidden folders and the system's",
    )


def _grants(options: Namespace) -> TaskGrants:
    """Raises `UsageError` for what would give tasks more than a service can mean."""
    kinds: list[ServerKind] = options.allow_mcp_servers
    for name in options.allow_mcp_variable:
        if not name.isidentifier() or not name.isascii():
            raise UsageError(f"--allow-mcp-variable {name!r} is no name of a variable")
        if name in _KEYS:
            raise UsageError(f"--allow-mcp-variable {name}: that is a key of the service itself")
    for path in options.allow_task_dir:
        if not path or not os.path.isdir(absolute(path, current_directory())):
            raise UsageError(f"--allow-task-dir {path!r} is not a directory that is there")
    return TaskGrants(
        servers=tuple(kinds),
        variables=tuple(options.allow_mcp_variable),
        directories=tuple(options.allow_task_dir),
    )


def _grant_flags(options: Namespace) -> tuple[str, ...]:
    """The flags of `_add_grants`, for a worker."""
    given = (
        ("--allow-mcp-servers", options.allow_mcp_servers),
        ("--allow-mcp-variable", options.allow_mcp_variable),
        ("--allow-task-dir", options.allow_task_dir),
    )
    return tuple(f"{flag}={value}" for flag, values in given for value in values)


def run_worker(argv: list[str]) -> int:
    from batten.redact.redactor import Redactor
    from batten.serve.http.logs import log_to_stderr

    environ = dict(os.environ)
    try:
        options, rest = worker_parser().parse_known_args(argv)
        if options.for_callers:
            return _fork_for_callers(options, environ)
        # A worker with a single run commits on its own thread: nothing else waits for it.
        base = _base(rest, environ, worker_parser(), _grants(options))
        opener = SessionOpener(base, own_process=True)
        log = log_to_stderr(Redactor.from_environment(environ).text)
        try:
            return asyncio.run(_work(opener, options))
        finally:
            log.flush()
    except BattenError as error:
        return _refuse(error)
    except SystemExit as left:
        return int(left.code or 0)


def _fork_for_callers(options: Namespace, environ: Mapping[str, str]) -> int:
    from batten.cli.local.fork_server import serve

    home = batten_home(environ, current_directory())
    return serve(home, sys.stdin.fileno() if options.leave_with_stdin else None)


async def _work(opener: SessionOpener, options: Namespace) -> int:
    from batten.control.pool import work

    pipe = sys.stdin.fileno() if options.leave_with_stdin else None
    try:
        await work(opener, runs=options.runs, parent_pipe=pipe)
    finally:
        opener.close()
    return 0


def run_serve(argv: list[str]) -> int:
    environ = dict(os.environ)
    try:
        options, rest = serve_parser().parse_known_args(argv)
        if options.max_runs and options.workers == 0:
            raise CallerError(
                "--max-runs limits the workers of the service, and --workers 0 starts none; give"
                " each `batten worker` its own --runs",
                code="usage",
            )
        base = _base(rest, environ, serve_parser(), _grants(options))
        return _serve(options, base, rest, environ)
    except BattenError as error:
        return _refuse(error)
    except SystemExit as left:
        return int(left.code or 0)


def _policy(options: Namespace) -> "RetentionPolicy":
    from batten.control.retention import EVERY_S, Keep, RetentionPolicy

    def seconds(length: timedelta | None) -> int:
        return 0 if length is None else int(length.total_seconds())

    return RetentionPolicy(
        runs=Keep(
            max_age_s=seconds(options.keep_runs_for),
            max_count=options.keep_runs,
            max_bytes=options.keep_runs_size,
        ),
        artifacts=Keep(
            max_age_s=seconds(options.keep_artifacts_for),
            max_count=options.keep_artifacts,
            max_bytes=options.keep_artifacts_size,
        ),
        every_s=seconds(options.retention_every) or EVERY_S,
    )


def _base(
    flags: Sequence[str], environ: Mapping[str, str], command: Parser, grants: TaskGrants
) -> SessionSpec:
    """What runs of the service may do, as far as their clients do not ask for less."""
    redact_for_people.set(redacting(environ))
    options = parse_headless(flags, environ, "maestro", command)
    if options.no_save:
        raise UsageError("--no-save: workers find the runs of a service in its journal only")
    if options.resume:
        raise UsageError("--resume: clients of a service name the session that they go on with")
    if options.sandbox == "none" and "sandboxed" in grants.servers:
        raise UsageError("--allow-mcp-servers sandboxed needs a sandbox; leave out --sandbox none")
    spec = headless_spec(options, environ)
    return replace(spec, surface="hecate", notes=False, tasks=grants)


def _refuse(error: BattenError) -> int:
    say(f"batten: {error}")
    return exit_code(outcome_of_error(error))


def _sinks_command(base: SessionSpec, host: str) -> tuple[str, ...]:
    command = (sys.executable, "-P", "-m", "batten", "sinks", "run", "--leave-with-stdin")
    allowed = (f"--allow={one}" for one in _local(host))
    named = () if base.settings is None else ("--settings", base.settings)
    return (*command, *allowed, *named)


def _callback_hosts(
    host: str, environ: Mapping[str, str], sinks: Mapping[str, Any]
) -> tuple[str, ...]:
    """Where an initiator may be that is not at a public address: as for webhooks and tools."""
    tools = environ.get("BATTEN_HTTP_ALLOW", "").split(",")
    return (*sinks.get("allow", ()), *tools, *_local(host))


def _local(host: str) -> tuple[str, ...]:
    """This machine, if nobody else can reach the service: who reaches it needs no help of ours."""
    from batten.serve.http.guard import is_loopback
    from batten.tools.addresses import LOOPBACK

    return (LOOPBACK,) if is_loopback(host) else ()


def _warn(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        _log.warning("%s", sentence)


def _tls(options: Namespace) -> "Tls | None":
    from batten.serve.http.listener import Tls

    if bool(options.tls_cert) != bool(options.tls_key):
        raise UsageError("--tls-cert and --tls-key belong together")
    return Tls(options.tls_cert, options.tls_key) if options.tls_cert else None


def _staff(options: Namespace, flags: Sequence[str], environ: Mapping[str, str]) -> "Staff":
    """The workers that the service keeps running."""
    from batten.control.supervisor import Staff, shares, worker_count
    from batten.journal.workers import lease_seconds

    at_once = shares(worker_count(options.workers), options.runs, options.max_runs)
    given = (*_grant_flags(options), *flags)
    return Staff(
        commands=tuple((*_WORKER, "--runs", str(runs), *given) for runs in at_once),
        environ=environ,
        hung_s=max(_STARTS_WITHIN_S, lease_seconds(environ)),
        memory_mib=options.worker_memory,
    )


def _limits(options: Namespace, plane: "ControlPlaneSettings") -> "Limits":
    from batten.serve.http.limits import MOST_WRONG_KEYS, Limits

    return Limits(
        rate_per_minute=options.rate_limit,
        wrong_keys_per_minute=MOST_WRONG_KEYS if plane.throttle_limit else 0,
    )


def _json_log(plane: "ControlPlaneSettings", environ: Mapping[str, str]) -> "JsonLines":
    from batten.redact.redactor import Redactor
    from batten.serve.http.logs import log_to_stderr
    from batten.settings.control_plane import LOG_LEVELS

    level = LOG_LEVELS.get(plane.log_level.lower(), logging.INFO)
    return log_to_stderr(Redactor.from_environment(environ).text, level)


def _serve(
    options: Namespace, base: SessionSpec, flags: Sequence[str], environ: Mapping[str, str]
) -> int:
    from batten.serve.http.server import ServeOptions, serve
    from batten.serve.http.service import service
    from batten.settings.control_plane import check_control_plane, read_control_plane, said_at_start
    from batten.sinks.process import SinkProcess, check_sinks, sink_table

    plane = read_control_plane(environ)
    check_control_plane(plane)
    if options.host is None:
        options.host = plane.host or _HOST
    if options.port is None:
        options.port = plane.port or _PORT
    wants_token = why_token_is_wanted(base)
    runtime = hosted_runtime(options, wants_token)
    opener = SessionOpener(base)
    make_home(opener.home)
    table = sink_table(opener.home, environ, base.cwd or current_directory(), base.settings)
    check_sinks(opener.home, environ, table)
    staff = _staff(options, flags, environ)
    beside = SinkProcess(
        replace(staff, commands=(_sinks_command(base, options.host),), memory_mib=0),
        opener.home,
        environ,
        table,
    )
    reachable = _callback_hosts(options.host, environ, table)
    policy = _policy(options)
    limits = _limits(options, plane)
    where = ServeOptions(
        home=opener.home,
        host=options.host,
        port=options.port,
        unix_socket=os.path.join(opener.home, "serve.sock"),
        tls=_tls(options),
        api_keys=plane.auth_api_keys,
        is_closed=plane.is_closed,
        allow_hosts=tuple(options.allow_host),
        is_open=options.open,
        wants_token=wants_token,
    )
    log = _json_log(plane, environ)
    _warn(said_at_start(plane, environ))
    try:
        return serve(
            lambda: service(
                opener,
                staff,
                (*_WORKER, "--for-callers"),
                beside,
                policy,
                limits,
                runtime,
                reachable,
            ),
            where,
        )
    finally:
        log.flush()
