"""Whether traces and metrics are exported, and to where, by the variables of OpenTelemetry."""

import logging
from collections.abc import Mapping
from typing import Literal, get_args
from urllib.parse import unquote

from msgspec import Struct

from batten.contract.errors import CallerError
from batten.contract.identity import first
from batten.sinks.bus.environment import tri_state
from batten.sinks.contract import LEASE_S

_ENDPOINT = "http://localhost:4318"
_SERVICE = "batten"
_TIMEOUT_S = 10.0
_LONGEST_S = LEASE_S / 2
_log = logging.getLogger("batten.sinks")
_PLANE = "macp-control-plane"
Protocol = Literal["http/json", "http/protobuf"]
_PROTOCOLS: dict[str, Protocol] = {one: one for one in get_args(Protocol)}


class OtelSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[sinks.otel]`; a variable of the environment beats each of them."""

    endpoint: str = ""
    headers: dict[str, str] = {}
    """A value that begins with `$` names a variable."""
    protocol: Protocol = "http/json"
    service_name: str = ""
    traces: bool = True
    metrics: bool = True


class OtelTarget(Struct, frozen=True, kw_only=True):
    """Where the export goes; an empty address exports nothing of that kind."""

    traces_url: str
    metrics_url: str
    protocols: dict[str, Protocol] = {}
    """Of traces and metrics, by their names; JSON if it is not named."""
    headers: dict[str, dict[str, str]]
    """By the same names, as are the seconds that an answer may take."""
    timeouts: dict[str, float] = {}
    service: str
    plane: str
    """The service that coordination sessions are told of."""
    resource: dict[str, str] = {}
    """What else is said of the service, such as where it is deployed."""


def otel_target(settings: OtelSettings | None, environ: Mapping[str, str]) -> OtelTarget | None:
    """None unless settings or `OTEL_ENABLED` turn it on."""
    flag = tri_state(environ.get("OTEL_ENABLED", ""))
    is_off = flag is False or tri_state(environ.get("OTEL_SDK_DISABLED", "")) is True
    if is_off or (settings is None and not flag):
        return None
    given = settings or OtelSettings()
    base = first(environ, ("OTEL_EXPORTER_OTLP_ENDPOINT",)) or given.endpoint or _ENDPOINT
    resource = _pairs(environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    stated = resource.pop("service.name", "")
    named = first(environ, ("OTEL_SERVICE_NAME",)) or stated or given.service_name
    urls: dict[str, str] = {}
    protocols: dict[str, Protocol] = {}
    headers: dict[str, dict[str, str]] = {}
    timeouts: dict[str, float] = {}
    for kind, is_on in (("traces", given.traces), ("metrics", given.metrics)):
        exporter = environ.get(f"OTEL_{kind.upper()}_EXPORTER", "").strip().lower()
        own = first(environ, (f"OTEL_EXPORTER_OTLP_{kind.upper()}_ENDPOINT",))
        if is_on and exporter != "none":
            urls[kind] = own or f"{base.rstrip('/')}/v1/{kind}"
            protocols[kind] = _protocol(kind, given.protocol, environ)
            headers[kind] = {**given.headers, **_pairs(_stated(kind, "HEADERS", environ)[1])}
            timeouts[kind] = _timeout_s(kind, environ)
    return OtelTarget(
        traces_url=urls.get("traces", ""),
        metrics_url=urls.get("metrics", ""),
        protocols=protocols,
        headers=headers,
        timeouts=timeouts,
        service=named or _SERVICE,
        plane=named or _PLANE,
        resource=resource,
    )


def _stated(kind: str, option: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """The variable that decides an option of this kind, and its text: its own before the common
    one. Empty if neither is set.
    """
    for variable in (f"OTEL_EXPORTER_OTLP_{kind.upper()}_{option}", f"OTEL_EXPORTER_OTLP_{option}"):
        if text := environ.get(variable, "").strip():
            return variable, text
    return "", ""


def _protocol(kind: str, usual: Protocol, environ: Mapping[str, str]) -> Protocol:
    variable, named = _stated(kind, "PROTOCOL", environ)
    if not named or named in _PROTOCOLS:
        return _PROTOCOLS.get(named, usual)
    raise CallerError(
        f"{variable} is {named!r}; {kind} are sent as http/json or http/protobuf, usually"
        " to port 4318",
        code="config",
    )


def _timeout_s(kind: str, environ: Mapping[str, str]) -> float:
    """From milliseconds; 0 is the longest. A text that is no such number is ignored, as the
    specification wants it.
    """
    variable, text = _stated(kind, "TIMEOUT", environ)
    if not text:
        return _TIMEOUT_S
    if not (text.isascii() and text.isdecimal()):
        _log.warning("%s is ignored: %r is no number of milliseconds", variable, text[:40])
        return _TIMEOUT_S
    longest_ms = int(_LONGEST_S * 1000)
    return min(int(text.lstrip("0")[:9] or 0) or longest_ms, longest_ms) / 1000


def _pairs(text: str) -> dict[str, str]:
    """`key=value,key=value`, with the values percent-encoded."""
    pairs = (one.partition("=") for one in text.split(",") if "=" in one)
    named = ((unquote(name.strip()), unquote(value.strip())) for name, _, value in pairs)
    return {name: value for name, value in named if name}
