"""`batten serve` and `batten worker`."""

import asyncio
import os
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from batten.cli import current_directory
from batten.cli.arguments import at_least_0, parse_headless
from batten.cli.options import headless_spec
from batten.cli.parsing import Parser
from batten.contract.errors import BattenError
from batten.contract.outcomes import exit_code, outcome_of_error
from batten.serve.output import redact_for_people, say
from batten.serve.words import redacting
from batten.wiring.home import batten_home
from batten.wiring.opener import SessionOpener
from batten.wiring.spec import SessionSpec

_RUNS = 16


def serve_parser() -> Parser:
    made = Parser(
        prog="batten serve",
        usage="batten serve [--host HOST] [--port PORT] [--workers N] [FLAG ...]",
        description="Serve tasks and runs over HTTP; worker processes execute them. Any flag of"
        " `batten headless` sets what those runs may do.",
    )
    made.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1")
    made.add_argument("--port", type=at_least_0, default=8765, help="0 for a free one")
    made.add_argument("--workers", type=at_least_0, help="processes; default: one a core")
    made.add_argument("--tls-cert", metavar="FILE", help="serve TLS with this certificate")
    made.add_argument("--tls-key", metavar="FILE", help="and this key")
    made.add_argument("--allow-host", action="append", default=[], metavar="NAME")
    _add_runs(made)
    return made


def worker_parser() -> Parser:
    made = Parser(
        prog="batten worker",
        usage="batten worker [--runs N] [FLAG ...]",
        description="Execute queued runs, for `batten serve --workers 0`. Any flag of"
        " `batten headless` sets what those runs may do.",
    )
    _add_runs(made)
    made.add_argument("--leave-with-stdin", action="store_true", help="end when stdin is closed")
    made.add_argument(
        "--for-callers",
        action="store_true",
        help="execute what `batten -p` of this user hands over, instead of queued runs",
    )
    return made


def _add_runs(made: Parser) -> None:
    made.add_argument(
        "--runs", type=at_least_0, default=_RUNS, help=f"runs at once in a worker; default: {_RUNS}"
    )


def run_worker(argv: list[str]) -> int:
    environ = dict(os.environ)
    try:
        options, rest = worker_parser().parse_known_args(argv)
        if options.for_callers:
            return _fork_for_callers(options, environ)
        opener = SessionOpener(_base(rest, environ))
        return asyncio.run(_work(opener, options))
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
        return _serve(options, _base(rest, environ), rest, environ)
    except BattenError as error:
        return _refuse(error)
    except SystemExit as left:
        return int(left.code or 0)


def _base(flags: Sequence[str], environ: Mapping[str, str]) -> SessionSpec:
    """What runs of the service may do, as far as their clients do not ask for less."""
    redact_for_people.set(redacting(environ))
    options = parse_headless(flags, environ, "maestro")
    return replace(headless_spec(options, environ), surface="hecate", notes=False)


def _refuse(error: BattenError) -> int:
    say(f"batten: {error}")
    return exit_code(outcome_of_error(error))


def _serve(
    options: Namespace, base: SessionSpec, flags: Sequence[str], environ: Mapping[str, str]
) -> int:
    from batten.control.supervisor import worker_count
    from batten.serve.http.listener import Tls
    from batten.serve.http.server import ServeOptions, serve
    from batten.serve.http.service import service

    opener = SessionOpener(base)
    os.makedirs(opener.home, mode=0o700, exist_ok=True)
    worker = [sys.executable, "-m", "batten", "worker", "--leave-with-stdin"]
    callers = [*worker, "--for-callers"]
    worker += ["--runs", str(options.runs), *flags]
    workers = worker_count(options.workers)
    tls = Tls(options.tls_cert, options.tls_key) if options.tls_cert or options.tls_key else None
    return serve(
        lambda: service(opener, worker, callers, environ, workers),
        ServeOptions(
            home=opener.home,
            host=options.host,
            port=options.port,
            unix_socket=os.path.join(opener.home, "serve.sock"),
            tls=tls,
            allow_hosts=tuple(options.allow_host),
        ),
    )
