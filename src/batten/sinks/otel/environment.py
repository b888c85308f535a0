"""Whether traces and metrics are exported, and to where, by the variables of OpenTelemetry."""

from collections.abc import Mapping
from urllib.parse import unquote

from msgspec import Struct

from batten.contract.errors import CallerError
from batten.contract.identity import first
from batten.sinks.bus.environment import tri_state

_ENDPOINT = "http://localhost:4318"
_SERVICE = "batten"
_PLANE = "macp-control-plane"


class OtelSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[sinks.otel]`; a variable of the environment beats each of them."""

    endpoint: str = ""
    headers: dict[str, str] = {}
    """A value that begins with `$` names a variable."""
    service_name: str = ""
    traces: bool = True
    metrics: bool = True


class OtelTarget(Struct, frozen=True, kw_only=True):
    """Where the export goes; an empty address exports nothing of that kind."""

    traces_url: str
    metrics_url: str
    headers: dict[str, str]
    service: str
    plane: str
    """The service that coordination sessions are told of."""


def otel_target(settings: OtelSettings | None, environ: Mapping[str, str]) -> OtelTarget | None:
    """None unless settings or `OTEL_ENABLED` turn it on."""
    flag = tri_state(environ.get("OTEL_ENABLED", ""))
    is_off = flag is False or tri_state(environ.get("OTEL_SDK_DISABLED", "")) is True
    if is_off or (settings is None and not flag):
        return None
    given = settings or OtelSettings()
    _check_protocol(environ)
    base = first(environ, ("OTEL_EXPORTER_OTLP_ENDPOINT",)) or given.endpoint or _ENDPOINT
    named = first(environ, ("OTEL_SERVICE_NAME",)) or given.service_name
    urls: dict[str, str] = {}
    for kind, is_on in (("traces", given.traces), ("metrics", given.metrics)):
        exporter = environ.get(f"OTEL_{kind.upper()}_EXPORTER", "").strip().lower()
        own = first(environ, (f"OTEL_EXPORTER_OTLP_{kind.upper()}_ENDPOINT",))
        if is_on and exporter != "none":
            urls[kind] = own or f"{base.rstrip('/')}/v1/{kind}"
    return OtelTarget(
        traces_url=urls.get("traces", ""),
        metrics_url=urls.get("metrics", ""),
        headers={**given.headers, **_headers(environ.get("OTEL_EXPORTER_OTLP_HEADERS", ""))},
        service=named or _SERVICE,
        plane=named or _PLANE,
    )


def _check_protocol(environ: Mapping[str, str]) -> None:
    protocol = environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "").strip()
    if protocol not in ("", "http/json", "http/protobuf"):
        raise CallerError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; traces are sent as http/json, usually to"
            " port 4318",
            code="config",
        )


def _headers(text: str) -> dict[str, str]:
    """`key=value,key=value`, with the values percent-encoded."""
    pairs = (one.partition("=") for one in text.split(",") if "=" in one)
    return {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs}
