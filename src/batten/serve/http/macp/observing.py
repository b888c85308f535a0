"""The observer of this server, and its way to the runtime."""

from functools import partial

from batten.control.coordination.records import Keeping
from batten.control.observer.breaker import Breaker
from batten.control.observer.contract import RuntimeClient, unavailable
from batten.control.observer.hosted import HostedRuntime
from batten.control.observer.link import RuntimeLink
from batten.control.observer.observer import Observer
from batten.journal.workers import lease_seconds
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from batten.settings.control_plane import ControlPlaneSettings
from batten.wiring.opener import SessionOpener


def open_observer(
    opener: SessionOpener, settings: ControlPlaneSettings, hosted: HostedRuntime
) -> Observer:
    """Connects with the first call: to the runtime that the settings name, else to ours."""
    link = RuntimeLink(
        lambda: settings.runtime_address or hosted.address,
        partial(_connect, settings, hosted.token),
        Breaker(
            settings.runtime_circuit_breaker_threshold,
            settings.runtime_circuit_breaker_reset_ms / 1000,
        ),
        settings.runtime_kind,
    )
    environ = opener.base.environ
    redactor = Redactor.from_environment(environ)
    keeping = Keeping(opener.journal, redactor, partial(SealKey.load, opener.home))
    return Observer(keeping, link, settings, lease_s=lease_seconds(environ))


def _connect(settings: ControlPlaneSettings, token: str, address: str) -> RuntimeClient:
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
        ),
    )
