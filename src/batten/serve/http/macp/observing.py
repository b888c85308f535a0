"""The observer of this server, and its way to the runtime."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from batten.control.observer.breaker import Breaker
from batten.control.observer.contract import RuntimeClient, unavailable
from batten.control.observer.hosted import HostedRuntime
from batten.control.observer.link import RuntimeLink
from batten.settings.control_plane import ControlPlaneSettings
from batten.wiring.opener import SessionOpener

if TYPE_CHECKING:  # loaded if the settings name a runtime
    from batten.control.observer.managing import RuntimeElsewhere
    from batten.control.observer.observer import Observer


class Observing:
    """Follows sessions of a runtime elsewhere; without one only `link` is used, by the routes."""

    def __init__(
        self, opener: SessionOpener, settings: ControlPlaneSettings, hosted: HostedRuntime
    ) -> None:
        """Connects with the first call: to the runtime that the settings name, else to ours."""
        self._opener = opener
        self._settings = settings
        self._observer: Observer | None = None
        self.link = RuntimeLink(
            lambda: settings.runtime_address or hosted.address,
            partial(_connect, settings, hosted.token, opener.base.environ),
            Breaker(
                settings.runtime_circuit_breaker_threshold,
                settings.runtime_circuit_breaker_reset_ms / 1000,
            ),
            settings.runtime_kind,
            why_none=partial(_why_none, hosted),
        )

    @property
    def runtime(self) -> "RuntimeElsewhere | None":
        """The runtime elsewhere, for what is asked of its sessions; None if there is none."""
        if not self._settings.runtime_address:
            return None
        from batten.control.observer.managing import RuntimeElsewhere

        return RuntimeElsewhere(self.link)

    @property
    def active(self) -> int:
        """Streams that are followed now."""
        return 0 if self._observer is None else self._observer.active

    @property
    def broken(self) -> int:
        """Runs in work whose stream is not connected."""
        return 0 if self._observer is None else self._observer.broken

    def look(self) -> None:
        """A run was queued, or asked to end: look at once."""
        if self._observer is not None:
            self._observer.look()

    async def run(self) -> None:
        """Until cancelled."""
        if not self._settings.runtime_address:
            return  # the runtime of this home keeps its own sessions
        from batten.control.coordination.records import Keeping
        from batten.control.observer.observer import Observer
        from batten.journal.workers import lease_seconds
        from batten.redact.identity import service_identity
        from batten.redact.redactor import Redactor
        from batten.redact.seal import SealKey

        opener, environ = self._opener, self._opener.base.environ
        redactor = Redactor.from_environment(environ)
        keeping = Keeping(
            opener.journal,
            redactor,
            partial(SealKey.load, opener.home),
            identity=service_identity(environ, redactor),
        )
        self._observer = Observer(
            keeping, self.link, self._settings, lease_s=lease_seconds(environ)
        )
        await self._observer.run()


def _why_none(hosted: HostedRuntime) -> str:
    if hosted.is_wanted:
        return f"{hosted.fault}: try again in a moment"
    return f"{hosted.fault}: start it with --runtime-bind, or name one with RUNTIME_ADDRESS"


def _connect(
    settings: ControlPlaneSettings, token: str, environ: Mapping[str, str], address: str
) -> RuntimeClient:
    try:  # gRPC costs memory and start time: only who needs it loads it
        from batten.serve.grpc.client import Dialling, GrpcRuntime
        from batten.serve.grpc.credentials import FixedCredentials, credentials_of
    except ImportError as error:
        raise unavailable(
            "calls to a runtime need more packages: install batten[runtime]"
        ) from error
    is_ours = not settings.runtime_address
    return GrpcRuntime(
        address,
        FixedCredentials(bearer=token) if is_ours else credentials_of(settings),
        Dialling(
            timeout_s=settings.runtime_request_timeout_ms / 1000,
            tls=settings.runtime_tls and not is_ours,
            roots=_roots(environ.get("SSL_CERT_FILE", "")),
        ),
    )


def _roots(path: str) -> bytes:
    if not path:
        return b""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise unavailable(f"SSL_CERT_FILE cannot be read: {error.strerror}") from error
