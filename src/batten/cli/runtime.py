"""`batten runtime`: agents decide together over gRPC."""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from argparse import Namespace
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from batten.cli import current_directory
from batten.cli.arguments import at_least_0
from batten.cli.parsing import Parser, UsageError
from batten.contract.errors import BattenError, CallerError, JournalError
from batten.contract.outcomes import exit_code, outcome_of_error
from batten.serve.output import redact_for_people, say
from batten.serve.words import redacting
from batten.wiring.home import batten_home, make_home

if TYPE_CHECKING:
    from batten.journal.contract import Journal
    from batten.redact.redactor import Redactor
    from batten.serve.grpc.callers import Callers
    from batten.serve.grpc.identity import Authenticator, Identity
    from batten.serve.grpc.server import Listening

_log = logging.getLogger("batten.coordination")
_BIND = "127.0.0.1:50051"
_MESSAGES = 600
_STARTS = 60
_LARGEST = 2**31 - 1 - 64 * 1024
"""What gRPC takes as a size, with room for the envelope."""
_PANELS = 1000
"""Questions that connected programs decide at the same time."""


def runtime_parser() -> Parser:
    made = Parser(
        prog="batten runtime",
        usage="batten runtime [--bind HOST:PORT] [FLAG ...]",
        description="Serve the MACP runtime over gRPC: sessions in which agents propose, vote and"
        " commit under a policy. On loopback, without tokens and API keys, the bearer value of our"
        " own user's programs is taken as the sender's name.",
    )
    made.add_argument(
        "--bind", metavar="HOST:PORT", help=f"default: {_BIND}; port 0 for a free one"
    )
    made.add_argument("--tokens", metavar="FILE", help="JSON: tokens, their senders and rights")
    made.add_argument("--jwt-issuer", metavar="URL", help="take tokens that this issuer signed")
    made.add_argument("--jwt-audience", metavar="NAME", help="default: macp-runtime")
    made.add_argument("--jwks", metavar="FILE|URL", help="the issuer's keys")
    made.add_argument("--tls-cert", metavar="FILE", help="serve TLS with this certificate")
    made.add_argument("--tls-key", metavar="FILE", help="and this key")
    made.add_argument("--policies", metavar="DIR", help="policies, one JSON file each; no others")
    made.add_argument(
        "--insecure",
        action="store_true",
        help="without TLS, and without tokens if there are none, also on other addresses",
    )
    made.add_argument(
        "--open",
        action="store_true",
        help="serve every user of this machine, and commands, where no token is wanted",
    )
    made.add_argument(
        "--wants-token",
        default="",
        metavar="REASON",
        help="why not even our own user is served without a token: `batten serve` tells",
    )
    made.add_argument(
        "--rate-limit",
        type=at_least_0,
        metavar="N",
        help=f"messages a minute of each sender; default: {_MESSAGES}, 0 for no limit",
    )
    made.add_argument(
        "--metrics", metavar="HOST:PORT", help="answer Prometheus here: http://HOST:PORT/metrics"
    )
    made.add_argument("--leave-with-stdin", action="store_true", help="end when stdin is closed")
    return made


def run_runtime(argv: list[str]) -> int:
    from batten.redact.redactor import Redactor
    from batten.serve.http.logs import log_to_stderr

    environ = dict(os.environ)
    redact_for_people.set(redacting(environ))
    try:
        options = runtime_parser().parse_args(argv)
        check_installed()
        log = log_to_stderr(Redactor.from_environment(environ).text)
        try:
            asyncio.run(_serve(options, environ))
        finally:
            log.flush()
    except BaseExceptionGroup as failed:
        return _refuse(failed)
    except BattenError as error:
        say(f"batten: {error}")
        return exit_code(outcome_of_error(error))
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def _refuse(failed: BaseExceptionGroup[BaseException]) -> int:
    error = failed.exceptions[0]
    if not isinstance(error, BattenError):
        raise failed
    say(f"batten: {error}")
    return exit_code(outcome_of_error(error))


def check_installed() -> None:
    """Raise `CallerError` if what gRPC needs is not installed."""
    from importlib.util import find_spec

    if find_spec("grpc") is None or find_spec("macp") is None:
        raise CallerError("the runtime needs more packages: install batten[runtime]", code="config")


def hosted_runtime(options: Namespace, wants_token: str) -> tuple[str, ...]:
    """The command of the runtime beside `batten serve`; empty if it has none. `wants_token`: why
    not even our user is served without the token, if so.

    It is a process of its own: gRPC would cost the server's start and memory. Raises `CallerError`
    if it was asked for and cannot be.
    """
    if options.no_runtime or not (options.runtime_bind or options.port):
        return ()
    bind = options.runtime_bind or f"127.0.0.1:{options.port + 1}"
    try:
        check_installed()
        _check_free(bind)
    except CallerError as error:
        if options.runtime_bind:
            raise
        say(f"batten: no runtime: {error}")
        return ()
    flags = ("--open",) if options.open else (f"--wants-token={wants_token}",)
    command = (sys.executable, "-P", "-m", "batten", "runtime", "--leave-with-stdin")
    return (*command, "--bind", bind, *flags)


def _check_free(bind: str) -> None:
    host, port = _address(bind, "--runtime-bind")
    if port == 0:
        return
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise CallerError(f"cannot serve on {bind}: {error.strerror}", code="config") from error


def _address(bind: str, flag: str) -> tuple[str, int]:
    host, _, port = bind.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{flag} takes HOST:PORT, not {bind!r}")
    return host.strip("[]"), int(port)


async def _beat() -> None:
    """Tell the process that started us that the loop goes round."""
    from batten.control.supervisor import BEAT_S

    while True:
        with suppress(OSError):
            sys.stdout.write(".")
            sys.stdout.flush()
        await asyncio.sleep(BEAT_S)


async def _serve(options: Namespace, environ: Mapping[str, str]) -> None:
    from batten.control.coordination.chair import may_adopt
    from batten.control.coordination.connected import ConnectedPanels
    from batten.control.coordination.duty import PanelDuty
    from batten.control.coordination.records import Keeping
    from batten.control.coordination.registries import FILE, Registries, load_policies
    from batten.control.coordination.runtime import Runtime
    from batten.redact.identity import service_identity
    from batten.redact.redactor import Redactor
    from batten.redact.seal import SealKey
    from batten.serve.grpc.rates import Rates
    from batten.serve.grpc.server import serve_runtime
    from batten.serve.grpc.service import ignore
    from batten.settings.control_plane import read_control_plane

    home = batten_home(environ, current_directory())
    make_home(home)
    listening = listening_of(options, environ)
    authenticator = authenticator_of(options, environ, home, listening)
    directory = options.policies or environ.get("MACP_POLICIES_DIR")
    fixed = load_policies(directory) if directory else None
    starts, messages = _rates(options, environ)
    stopping = _stopping(options)
    in_memory = environ.get("MACP_MEMORY_ONLY") == "1" and not options.leave_with_stdin
    journal = _journal(home, in_memory=in_memory)
    try:
        redactor = Redactor.from_environment(environ)
        keeping = Keeping(
            journal,
            redactor,
            partial(SealKey.load, home),
            read_control_plane(environ).macp_redact_patterns,
            service_identity(environ, redactor),
        )
        registries = Registries("" if in_memory else os.path.join(home, FILE), fixed)
        runtime = Runtime(keeping, registries, adopts=may_adopt, commits_here=True)
        panels = ConnectedPanels(runtime, lambda: authenticator.allows_anyone)
        duty = PanelDuty(journal, keeping.redactor, "runtime", panels.decide, most=_PANELS)
        await runtime.recover()
        rates = Rates(starts=starts, messages=messages)
        record = ignore if in_memory else partial(_record, home, redactor)
        async with serve_runtime(runtime, authenticator, rates, listening, record) as address:
            sys.stdout.write(f"listening on {address}\n")
            sys.stdout.flush()
            _log.info("the runtime listens on %s", address)
            _collect_seldom()
            async with asyncio.TaskGroup() as group:
                duties = [group.create_task(duty.run())]
                if options.leave_with_stdin:
                    duties.append(group.create_task(_beat()))
                await stopping.wait()
                for one in duties:
                    one.cancel()
    finally:
        journal.close()


@contextmanager
def _record(
    home: str, redactor: "Redactor", sender: str, action: str, resource: str, resource_id: str
) -> Generator[None]:
    """Record in the audit log of the home what the body does, also if it is cut off by a kill."""
    from batten.sinks.audit.log import AuditLog
    from batten.sinks.audit.noting import noted

    has_begun = False
    noting = partial(noted, actor=redactor.authored.text(sender), actor_type="key", action=action)
    what = partial(noting, resource=resource, resource_id=redactor.authored.text(resource_id))
    try:
        with closing(AuditLog.open(home)) as log, what(log):
            has_begun = True
            yield
    except JournalError as error:
        if not has_begun:
            yield
        _log.warning("%s is not in the audit log: %s", action, error)


def _collect_seldom() -> None:
    """Leave what was loaded out of garbage collections, and make fewer: with a thousand sessions
    they took a tenth of the time, and single ones 60 ms.
    """
    gc.freeze()
    gc.set_threshold(10_000)


def _journal(home: str, *, in_memory: bool) -> "Journal":
    from batten.journal.opening import MEMORY, open_store

    return open_store(MEMORY if in_memory else home)


def _rates(options: Namespace, environ: Mapping[str, str]) -> tuple[int, int]:
    """How many sessions and other messages a sender may send a minute; 0 for no limit."""
    starts = _whole(environ, "MACP_SESSION_START_LIMIT_PER_MINUTE", _STARTS)
    messages = _whole(environ, "MACP_MESSAGE_LIMIT_PER_MINUTE", _MESSAGES)
    if options.rate_limit is not None:
        messages = options.rate_limit
        starts = starts if messages else 0
    return starts, messages


def _whole(environ: Mapping[str, str], name: str, default: int, *, least: int = 0) -> int:
    """A whole number of the environment. Raises `CallerError` for what is none."""
    text = environ.get(name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and least <= int(text) <= _LARGEST):
        raise CallerError(
            f"{name} is {text!r}: write a whole number from {least} to {_LARGEST}", code="config"
        )
    return int(text)


def _stopping(options: Namespace) -> asyncio.Event:
    """Set by SIGTERM, SIGINT, or the end of stdin where that is asked for."""
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if options.leave_with_stdin:

        def look() -> None:
            if not os.read(0, 4096):
                loop.remove_reader(0)
                stopping.set()

        loop.add_reader(0, look)
    return stopping


def listening_of(options: Namespace, environ: Mapping[str, str]) -> "Listening":
    """Where to listen. Raises `CallerError` for what would be open to others."""
    from batten.coordination.envelope import MAX_PAYLOAD_BYTES
    from batten.serve.grpc.server import GRACE_S, MAX_STREAMS, Listening, is_loopback

    bind: str = options.bind or environ.get("MACP_BIND_ADDR") or _BIND
    host, port = _address(bind, "--bind")
    certificate = options.tls_cert or environ.get("MACP_TLS_CERT_PATH") or ""
    key = options.tls_key or environ.get("MACP_TLS_KEY_PATH") or ""
    if bool(certificate) != bool(key):
        raise UsageError("--tls-cert and --tls-key belong together")
    if not certificate and not is_loopback(host) and not _is_insecure(options, environ):
        raise CallerError(
            f"{host} can be reached by others: give --tls-cert and --tls-key, or --insecure",
            code="config",
        )
    metrics = options.metrics or environ.get("MACP_METRICS_ADDR") or ""
    return Listening(
        host=host,
        port=port,
        tls_cert=_read(certificate),
        tls_key=_read(key),
        max_payload_bytes=_whole(environ, "MACP_MAX_PAYLOAD_BYTES", MAX_PAYLOAD_BYTES, least=1),
        max_streams=_whole(environ, "MACP_MAX_CONCURRENT_STREAMS", MAX_STREAMS, least=1),
        grace_s=_whole(environ, "MACP_SHUTDOWN_DRAIN_SECS", GRACE_S),
        metrics=_address(metrics, "--metrics") if metrics else None,
    )


def _is_insecure(options: Namespace, environ: Mapping[str, str]) -> bool:
    return bool(options.insecure) or environ.get("MACP_ALLOW_INSECURE") == "1"


def authenticator_of(
    options: Namespace,
    environ: Mapping[str, str],
    home: str,
    listening: "Listening",
    reserved: Iterable[str] = (),
) -> "Authenticator":
    """Who may call: tokens, signed tokens, the API keys of the home; anybody on loopback if there
    is none of them. Nobody under a `reserved` name.
    """
    from batten.control.observer.hosted import TOKEN_VARIABLE
    from batten.serve.grpc.identity import Authenticator, observer_token, read_tokens
    from batten.serve.grpc.server import is_loopback
    from batten.serve.grpc.signed_tokens import (
        DEFAULT_ALGORITHMS,
        DEFAULT_AUDIENCE,
        FRESH_S,
        JwtOptions,
        JwtVerifier,
    )
    from batten.serve.http.keys import KeyRing, KeyStore
    from batten.settings.control_plane import read_control_plane

    inline = "" if options.tokens else environ.get("MACP_AUTH_TOKENS_JSON", "")
    file = options.tokens or environ.get("MACP_AUTH_TOKENS_FILE") or ""
    tokens = None
    if inline:
        tokens = read_tokens(inline.encode(), "MACP_AUTH_TOKENS_JSON")
    elif file:
        tokens = read_tokens(_read(file), file)
    issuer = options.jwt_issuer or environ.get("MACP_AUTH_ISSUER") or ""
    jwt = None
    if issuer:
        keys_text = "" if options.jwks else environ.get("MACP_AUTH_JWKS_JSON", "").strip()
        place = "" if keys_text else options.jwks or environ.get("MACP_AUTH_JWKS_URL") or ""
        is_url = place.startswith(("http://", "https://"))
        named = environ.get("MACP_AUTH_JWT_ALGS", "").upper().replace(",", " ").split()
        jwt = JwtVerifier(
            JwtOptions(
                issuer=issuer,
                audience=options.jwt_audience
                or environ.get("MACP_AUTH_AUDIENCE")
                or DEFAULT_AUDIENCE,
                algorithms=tuple(named) or DEFAULT_ALGORITHMS,
                jwks=_read(place).decode() if place and not is_url else keys_text,
                jwks_url=place if is_url else "",
                fresh_s=_whole(environ, "MACP_AUTH_JWKS_TTL_SECS", FRESH_S, least=1),
            )
        )
    ring = KeyRing(KeyStore(home))
    configured = tokens is not None or jwt is not None
    observing = observer_token(environ.get(TOKEN_VARIABLE, ""))
    may = is_loopback(listening.host) or _is_insecure(options, environ)
    is_closed = read_control_plane(environ).is_closed
    if not configured and ring.is_empty and not may:
        raise CallerError(
            "nobody could call: give --tokens, --jwt-issuer, or make a key with `batten keys`",
            code="config",
        )
    return Authenticator(
        tokens={**(tokens or {}), **observing},
        jwt=jwt,
        keys=partial(_key_identity, ring),
        keys_version=lambda: ring.version,
        allow_anyone=lambda: may and not configured and ring.is_empty and not is_closed,
        reserved=reserved,
        callers=_callers(options, environ, home, listening.host),
    )


def _callers(options: Namespace, environ: Mapping[str, str], home: str, host: str) -> "Callers":
    from batten.client.home_service import make_home_token
    from batten.serve.grpc.callers import Callers

    is_open = options.open or _is_insecure(options, environ)
    token = make_home_token(home)
    return Callers(token, host, is_open=is_open, wants_token=options.wants_token)


def _key_identity(ring: object, credential: str) -> "Identity | None":
    """The identity of an API key: viewers observe, operators take part, admins manage."""
    from batten.coordination.rejection import Rejection
    from batten.serve.grpc.identity import Identity
    from batten.serve.http.keys import KeyExpired, KeyRing

    assert isinstance(ring, KeyRing)
    try:
        principal = ring.principal({b"authorization": b"Bearer " + credential.encode()})
    except KeyExpired as expired:
        raise Rejection("UNAUTHENTICATED", expired.message) from None
    if principal is None:
        return None
    return Identity(
        sender=principal.name,
        can_start_sessions=principal.scope != "viewer",
        can_manage_mode_registry=principal.scope == "admin",
        is_observer=True,
    )


def _read(path: str) -> bytes:
    if not path:
        return b""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise CallerError(f"{path} cannot be read: {error.strerror}", code="config") from error
