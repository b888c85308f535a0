"""Whether the event bus is told what happens, and why or why not."""

from urllib.parse import urlsplit

from msgspec import UNSET

from batten.cli import current_directory
from batten.cli.checks import Finding, Surroundings
from batten.sinks.bus.environment import bus_status
from batten.sinks.configuration import bus_environment
from batten.sinks.process import sink_settings

_UNSET = "disabled"


async def check_event_bus(around: Surroundings) -> list[Finding]:
    """Nothing if nobody asked for the bus."""
    settings = sink_settings(around.home, around.environ, current_directory(), None)
    status = bus_status(bus_environment(settings.event_bus, around.environ))
    if status.reason == _UNSET:
        return []
    if not status.enabled:
        return [Finding("event bus", "ok", f"off: {status.reason}")]
    if status.nats_url is UNSET:
        remedy = "set MAESTRO_EVENT_BUS_URL, or MAESTRO_EVENT_BUS=0 to turn it off"
        return [Finding("event bus", "warning", f"nothing is published: {status.reason}", remedy)]
    servers = ", ".join(map(_without_credentials, status.nats_url.split(",")))
    return [Finding("event bus", "ok", f"at {servers}; `batten smoke event-bus` tries it")]


def _without_credentials(url: str) -> str:
    parts = urlsplit(url.strip())
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
