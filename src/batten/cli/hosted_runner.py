"""`batten hosted-runner`, and the process of its session."""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from batten import __version__
from batten.cli.arguments import parse_headless
from batten.cli.options import headless_spec
from batten.cli.parsing import Parser
from batten.cli.tokens import why_token_is_wanted
from batten.contract.errors import BattenError, CallerError
from batten.serve.output import instead_of_people, redact_for_people, say
from batten.serve.words import redacting
from batten.wiring.home import make_home
from batten.wiring.opener import SessionOpener

if TYPE_CHECKING:
    from batten.protocols.maestro.incoming import Init
    from batten.runner.config import RunnerConfig
    from batten.runner.restore import Restored
    from batten.runner.runner import Runner
    from batten.serve.http.app import App
    from batten.serve.http.logs import JsonLines
    from batten.serve.http.runner.service import RunnerService
    from batten.serve.maestro.runtime import Runtime
    from batten.serve.maestro.session_wire import Open

_log = logging.getLogger("batten.runner")
_FAILED = 1
"""The exit code of a runner that cannot start or could not hand over, as its protocol says."""


def hosted_runner_parser() -> Parser:
    made = Parser(
        prog="batten hosted-runner",
        usage="batten hosted-runner --runner-session-id ID --workspace-root DIR ...",
        description="Serve one session over HTTP for a control plane: identity, drain, restore and"
        " remote clients. Each flag has a variable too: see docs/maestro.md. Any flag of `batten"
        " headless` sets what the session may do.",
    )
    for flag, metavar, text in (
        ("runner-session-id", "ID", "the control plane's id of this runner; needed"),
        ("workspace-root", "DIR", "the only workspace; needed"),
        ("listen", "HOST:PORT", "where to listen, or only the port"),
        ("host", "HOST", "default: 0.0.0.0"),
        ("port", "PORT", "default: 8080; 0 for a free one"),
        ("owner-instance-id", "ID", "tells apart successive owners of a runner session"),
        ("snapshot-root", "DIR", "for manifests; default: .maestro/runner-snapshots"),
        ("restore-manifest", "FILE", "the manifest of a drained runner to go on from"),
        ("workspace-id", "ID", "of the workspace, for manifests"),
        ("agent-run-id", "ID", "of the run, for manifests"),
        ("maestro-session-id", "ID", "the session to serve; new if it does not exist"),
        ("attach-audience", "NAME", "metadata of the control plane"),
    ):
        made.add_argument(f"--{flag}", metavar=metavar, help=text)
    return made


def run_hosted_runner(argv: list[str]) -> int:
    environ = dict(os.environ)
    redact_for_people.set(redacting(environ))
    try:
        from batten.runner.config import resolve

        options, rest = hosted_runner_parser().parse_known_args(argv)
        config = resolve(vars(options), environ)
        return _serve(config, rest, environ)
    except BattenError as error:
        say(f"batten: {error}")
        return _FAILED
    except SystemExit as left:
        return int(left.code or 0)


def run_hosted_session(argv: list[str]) -> int:
    """The process of a runner's session; only a runner starts it."""
    from batten.cli.headless import serve_protocol

    environ = dict(os.environ)
    redact_for_people.set(redacting(environ))
    log = _log_to_stderr(environ, environ.get("MAESTRO_RUNNER_SESSION_ID", ""))
    # Its stderr is the runner's: what is for people is a line of the log too.
    instead_of_people.set(lambda text: _log.warning("%s", text.removeprefix("batten: ").rstrip()))
    options = parse_headless(argv, environ, "maestro")
    try:
        return serve_protocol("hosted", headless_spec(options, environ), (), environ)
    finally:
        log.flush()


def _log_to_stderr(environ: Mapping[str, str], runner_session_id: str) -> "JsonLines":
    from batten.redact.redactor import Redactor
    from batten.serve.http.logs import log_to_stderr

    redact = Redactor.from_environment(environ).text
    return log_to_stderr(redact, always={"runner_session_id": runner_session_id})


def _serve(config: "RunnerConfig", flags: Sequence[str], environ: Mapping[str, str]) -> int:
    from batten.serve.http.runner.access import PLATFORM
    from batten.serve.http.server import ServeOptions, serve

    root = config.identity.workspace_root
    options = parse_headless(flags, environ, "maestro", hosted_runner_parser())
    if options.resume or options.no_save or options.workspace:
        raise CallerError(
            "--resume, --no-save and --workspace are not for a runner: --maestro-session-id and"
            " --workspace-root say what it serves",
            code="config",
        )
    os.chdir(root)
    opener = SessionOpener(replace(headless_spec(options, environ), surface="maestro"))
    hosting = _Hosting(config, opener, flags)
    make_home(opener.home)
    hosting.prepare()
    log = _log_to_stderr(environ, config.identity.runner_session_id)
    try:
        code = serve(
            hosting.opening,
            ServeOptions(
                home=opener.home,
                host=config.host,
                port=config.port,
                wants_keys=False,
                keyless=PLATFORM,
                wants_token=why_token_is_wanted(opener.base),
            ),
            hosting.drain_at_end,
        )
    finally:
        log.flush()
    return code or hosting.code


class _Hosting:
    """The parts of a runner, from before it listens to its end."""

    def __init__(self, config: "RunnerConfig", opener: SessionOpener, flags: Sequence[str]) -> None:
        self._config = config
        self._opener = opener
        self._flags = tuple(flags)
        self._restored: Restored | None = None
        self._stored_id: str | None = ""
        self._service: RunnerService | None = None
        self.code = 0

    def prepare(self) -> None:
        """Check limits, models, settings and manifest, and take over its session, before anything
        listens.
        """
        from batten.runner.restore import load
        from batten.runner.session_file import PASSPHRASE, take_over
        from batten.serve.maestro.greeting import checked_model
        from batten.serve.maestro.limits import limits_of
        from batten.serve.maestro.sharing import sharing_of
        from batten.wiring.files import settings_of_files
        from batten.wiring.settings import run_settings

        base = self._opener.base
        limits_of(base.environ)
        sharing_of(base.environ)
        if base.model:
            checked_model(base)
        identity = self._config.identity
        root = identity.workspace_root
        found = settings_of_files(replace(base, warn=str), root, self._opener.home)
        # Without a model, those who create the session name one.
        run_settings(replace(base, needs_model=bool(base.models)), None, found)
        if self._config.restore is None:
            return
        session_id = identity.maestro_session_id
        self._restored = load(self._config.restore, root, session_id, base.environ)
        if self._restored.is_ready:
            passphrase = base.environ.get(PASSPHRASE)
            self._stored_id = take_over(self._opener.home, root, self._restored, passphrase)

    @asynccontextmanager
    async def opening(self) -> "AsyncGenerator[App]":
        from batten.runner.runner import Runner
        from batten.serve.http.app import App
        from batten.serve.http.limits import Limits
        from batten.serve.http.metrics import Metrics
        from batten.serve.http.runner.gauges import add_gauges
        from batten.serve.http.runner.service import RunnerService
        from batten.serve.http.runner.surface import ABOUT, runner_surfaces
        from batten.serve.http.system import System
        from batten.serve.maestro.sharing import sharing_of

        environ = self._opener.base.environ
        runner = Runner(self._config.identity, restored=self._restored, environ=environ)
        idle_s = sharing_of(environ).runtime_idle_ms / 1000
        try:
            async with asyncio.TaskGroup() as group:
                make = partial(self._runtime, runner)
                service = RunnerService(runner, make, lambda: self._opener.journal, group, idle_s)
                self._service = service
                watching = group.create_task(service.watch())
                try:
                    if self._restored is not None:
                        await service.restore(self._opening())
                    metrics = Metrics()
                    add_gauges(metrics, service)
                    system = System(version=__version__, metrics=metrics, about=ABOUT)
                    surfaces = runner_surfaces(service, self._config.keys, system)
                    # Envelopes have heartbeats of their own.
                    yield App(surfaces, limits=Limits(heartbeat_s=1e9), metrics=metrics)
                finally:
                    watching.cancel()
                    await service.close()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        finally:
            self._opener.close()

    async def drain_at_end(self) -> None:
        """After SIGTERM: the same drain as a request for one."""
        from batten.runner.request import DrainRequest

        assert self._service is not None
        request = DrainRequest(reason="process_shutdown", requested_by="maestro_web_server")
        try:
            drained = await self._service.drain(request)
        except BattenError:  # it is in the log
            self.code = _FAILED
            return
        self.code = 0 if drained.status == "drained" else _FAILED

    def _opening(self) -> "Open":
        """The session of the manifest."""
        from batten.protocols.maestro.incoming import Init
        from batten.runner.session_file import journal_id
        from batten.serve.maestro.session_wire import Open

        restored = self._restored
        assert restored is not None
        if self._stored_id is None:
            _log.warning(
                "the manifest is of another make: its state and cursor are restored, and its"
                " conversation is not"
            )
            init = restored.snapshot.last_init or Init()
            new_id = journal_id(restored.drained_id)
            return Open(session_id=new_id, name=restored.session_id, exists=False, init=init)
        # What the clients wanted to be asked about, they are, whatever mode the flags say.
        held = restored.snapshot.last_init
        mode = None if held is None or held.approval_mode == "auto" else held.approval_mode
        return Open(
            session_id=self._stored_id,
            name=restored.session_id,
            exists=True,
            init=Init(approval_mode=mode),
        )

    def _runtime(
        self, runner: "Runner", opening: "Open", cursor: int, last_init: "Init | None"
    ) -> "Runtime":
        from batten.runner.session_file import PASSPHRASE, write
        from batten.serve.maestro.runtime import Runtime
        from batten.serve.maestro.session_process import SessionProcess

        root = self._config.identity.workspace_root
        environ = self._config.exported
        command = (sys.executable, "-P", "-m", "batten", "hosted-session", *self._flags)
        keep = partial(write, self._opener.home, root, self._opener.base.environ.get(PASSPHRASE))
        restored, self._restored = self._restored, None  # a later runtime goes on by itself
        return Runtime(
            lambda hub: SessionProcess(
                hub, (*command, "--workspace", root), environ, root, opening, keep
            ),
            environ,
            runner=runner,
            restored=restored,
            cursor=cursor,
            last_init=last_init,
        )
