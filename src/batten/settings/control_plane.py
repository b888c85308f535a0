"""The control plane's environment variables, read once into one frozen value."""

from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from msgspec import Struct

from batten.contract.errors import CallerError

_TRUE = frozenset(("1", "true", "yes", "on"))
_WEAK = 16
_SHORTEST_KEY = 8
_MEANINGLESS = {
    "DATABASE_URL": "runs are kept in the journal of BATTEN_HOME",
    "REDIS_URL": "streams read the journal, and need no hub",
    "STREAM_HUB_STRATEGY": "streams read the journal, and need no hub",
    "DB_POOL_MAX": "there is no pool of connections",
    "DB_POOL_IDLE_TIMEOUT": "there is no pool of connections",
    "DB_POOL_CONNECTION_TIMEOUT": "there is no pool of connections",
}
"""Variables of other control planes, and why nothing happens for them."""


class ControlPlaneSettings(Struct, frozen=True, kw_only=True):
    """Every field is a variable in upper case; a value that is no number is the default."""

    node_env: str = ""
    """`development`, or where nothing may be open, such as `production`; empty for neither."""
    host: str = ""
    """Where `batten serve` listens without `--host`; empty for loopback."""
    port: int = 0
    """The same for `--port`; 0 for the usual one."""
    log_level: str = "info"
    cors_origin: str = ""
    """The one site besides this server whose pages may call these paths; empty for none."""
    auth_api_keys: tuple[str, ...] = ()
    """Keys besides those of `batten keys`, each with the scope admin."""
    runtime_kind: str = "rust"
    runtime_address: str = ""
    """Empty: the runtime beside this service."""
    runtime_tls: bool = False
    runtime_allow_insecure: bool = False
    runtime_use_dev_header: bool = False
    runtime_bearer_token: str = ""
    runtime_dev_agent_id: str = "macp-control-plane"
    runtime_request_timeout_ms: int = 30_000
    macp_auth_service_url: str = ""
    macp_auth_service_timeout_ms: int = 5000
    macp_auth_token_ttl_seconds: int = 3600
    macp_auth_token_sender: str = "macp-control-plane"
    macp_auth_token_can_manage_registry: bool = False
    session_poll_base_ms: int = 100
    session_poll_max_ms: int = 1000
    session_poll_timeout_ms: int = 60_000
    cancel_callback_timeout_ms: int = 5000
    session_discovery_enabled: bool = True
    run_recovery_enabled: bool = True
    runtime_circuit_breaker_threshold: int = 5
    runtime_circuit_breaker_reset_ms: int = 30_000
    stream_idle_timeout_ms: int = 120_000
    stream_max_retries: int = 5
    stream_backoff_base_ms: int = 250
    stream_backoff_max_ms: int = 30_000
    stream_sse_heartbeat_ms: int = 15_000
    replay_max_delay_ms: int = 2000
    replay_batch_size: int = 500
    throttle_ttl_ms: int = 60_000
    throttle_limit: int = 100
    """Requests of one client in that time; 0 for no limit."""
    data_retention_enabled: bool = False
    data_retention_ttl_days: int = 30
    data_retention_interval_hours: int = 24
    data_retention_batch_size: int = 500
    macp_redact_patterns: tuple[str, ...] = ()
    otel_enabled: bool = False
    otel_service_name: str = "macp-control-plane"
    otel_exporter_otlp_endpoint: str = ""

    @property
    def is_closed(self) -> bool:
        """Whether nothing may be open, not even to this machine."""
        return self.node_env not in ("", "development")


def check_control_plane(settings: ControlPlaneSettings) -> None:
    """Raise why a service must not start with these settings; see also `is_closed`."""
    for problem in _problems(settings):
        raise CallerError(problem, code="config")


def _problems(settings: ControlPlaneSettings) -> Iterator[str]:
    if settings.port > 65535:
        yield f"PORT is {settings.port}; it must be a port: 0 to 65535"
    if settings.data_retention_enabled and settings.data_retention_ttl_days < 1:
        yield "DATA_RETENTION_TTL_DAYS must be at least 1"
    origin = settings.cors_origin
    if origin and not _is_origin(origin):
        yield f"CORS_ORIGIN is {origin!r}; give one origin, such as http://localhost:3000"
    if any(len(key) < _SHORTEST_KEY for key in settings.auth_api_keys):
        yield (
            f"AUTH_API_KEYS has a key of less than {_SHORTEST_KEY} characters, which is soon"
            f" guessed; give each at least {_WEAK} random ones, or use batten keys create"
        )
    if not settings.runtime_address:
        return
    is_open = not (settings.runtime_tls or settings.runtime_allow_insecure)
    if is_open and (settings.is_closed or not _is_local(settings.runtime_address)):
        yield (
            f"the runtime at {settings.runtime_address} would be told its token in the clear;"
            " set RUNTIME_TLS=true, or RUNTIME_ALLOW_INSECURE=true to allow it"
        )
    if settings.is_closed and settings.runtime_use_dev_header and not settings.runtime_bearer_token:
        yield (
            "RUNTIME_USE_DEV_HEADER proves nothing to a runtime; set RUNTIME_BEARER_TOKEN, or"
            " NODE_ENV=development"
        )


def said_at_start(settings: ControlPlaneSettings, environ: Mapping[str, str]) -> list[str]:
    """What an operator should know: variables that mean nothing here, and doubtful ones."""
    said = [f"{name} is ignored: {why}" for name, why in _MEANINGLESS.items() if environ.get(name)]
    if any(len(key) < _WEAK for key in settings.auth_api_keys):
        said.append(
            f"AUTH_API_KEYS has a key of less than {_WEAK} characters, which can be guessed"
        )
    if settings.otel_enabled and not settings.otel_exporter_otlp_endpoint:
        said.append("OTEL_ENABLED without OTEL_EXPORTER_OTLP_ENDPOINT: traces go to localhost:4318")
    if settings.runtime_address and not (
        settings.runtime_bearer_token or settings.macp_auth_service_url
    ):
        said.append("RUNTIME_ADDRESS without RUNTIME_BEARER_TOKEN: the runtime may refuse to talk")
    if settings.macp_redact_patterns:
        from batten.protocols.macp.redaction import broken_patterns

        said.extend(
            f"MACP_REDACT_PATTERNS: {one!r} is no regular expression and is skipped; a pattern"
            " cannot contain a comma"
            for one in broken_patterns(settings.macp_redact_patterns)
        )
    if settings.log_level.lower() not in LOG_LEVELS:
        known = ", ".join(LOG_LEVELS)
        said.append(f"LOG_LEVEL is {settings.log_level!r}, and info is used; there are {known}")
    return said


LOG_LEVELS = {
    "debug": 10,
    "verbose": 10,
    "log": 20,
    "info": 20,
    "warn": 30,
    "warning": 30,
    "error": 40,
    "fatal": 50,
}
"""The names that LOG_LEVEL may have, as the standard library counts."""


def _is_origin(text: str) -> bool:
    try:
        parts = urlsplit(text)
        is_plain = text.lower() == f"{parts.scheme}://{parts.netloc}".lower()
        return is_plain and parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False


def _is_local(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]") or address
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_control_plane(environ: Mapping[str, str]) -> ControlPlaneSettings:
    """The settings that this environment tells."""
    defaults = ControlPlaneSettings()
    is_development = environ.get("NODE_ENV") == "development"
    given: dict[str, object] = {
        "runtime_allow_insecure": is_development,
        "runtime_use_dev_header": is_development,
    }
    for name in ControlPlaneSettings.__struct_fields__:
        text = environ.get(name.upper(), "").strip()
        if text:
            default = getattr(defaults, name)
            value = _READERS[type(default)](text, default)
            given[name] = default if value == 0 and name in _POSITIVE else value
    return ControlPlaneSettings(**given)  # type: ignore[arg-type] # each read by its own type


_POSITIVE = frozenset(
    (
        *("runtime_request_timeout_ms", "macp_auth_service_timeout_ms"),
        *("macp_auth_token_ttl_seconds", "cancel_callback_timeout_ms", "throttle_ttl_ms"),
        *("session_poll_base_ms", "session_poll_max_ms", "session_poll_timeout_ms"),
        *("runtime_circuit_breaker_threshold", "stream_idle_timeout_ms"),
        *("stream_backoff_base_ms", "stream_backoff_max_ms", "stream_sse_heartbeat_ms"),
        *("replay_batch_size", "data_retention_interval_hours", "data_retention_batch_size"),
    )
)
"""Times and sizes of which nothing would be no setting: 0 is the default there."""


def _flag(text: str, default: bool) -> bool:
    return text.lower() in _TRUE


def _number(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() else default


def _list(text: str, default: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _text(text: str, default: str) -> str:
    return text


_READERS: dict[type, Callable[..., object]] = {
    bool: _flag,
    int: _number,
    tuple: _list,
    str: _text,
}
