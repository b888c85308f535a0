"""The control plane's environment variables, read once into one frozen value."""

from collections.abc import Callable, Mapping

from msgspec import Struct

_TRUE = frozenset(("1", "true", "yes", "on"))


class ControlPlaneSettings(Struct, frozen=True, kw_only=True):
    """Every field is a variable in upper case; a value that is no number is the default."""

    node_env: str = ""
    auth_api_keys: tuple[str, ...] = ()
    cors_origin: str = ""
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
            given[name] = _READERS[type(default)](text, default)
    return ControlPlaneSettings(**given)  # type: ignore[arg-type] # each read by its own type


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
