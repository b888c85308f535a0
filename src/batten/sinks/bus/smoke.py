"""Sends one event to a live server and reads it back."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from batten.contract.envelope import timestamp
from batten.contract.errors import ProviderError
from batten.contract.identity import first
from batten.contract.ids import Minter
from batten.sinks.bus import payloads
from batten.sinks.bus.environment import SOURCE
from batten.sinks.bus.publisher import Publisher

SMOKE_SOURCE = "maestro.smoke"
_PATIENCE_S = 10.0


class Smoked(Struct, frozen=True):
    """One event that went there and back."""

    id: str
    subject: str
    stream: str
    sequence: int


async def smoke_event_bus(environ: Mapping[str, str], cwd: str, url: str = "") -> Smoked:
    """Raises why it failed."""
    publisher = Publisher(
        environ,
        cwd,
        url=url,
        source=first(environ, SOURCE) or SMOKE_SOURCE,
        timeout_s=_PATIENCE_S,
    )
    session = first(environ, ("MAESTRO_EVENT_BUS_SMOKE_SESSION_ID",))
    event_id = first(environ, ("MAESTRO_EVENT_BUS_SMOKE_EVENT_ID",))
    made_id = Minter().mint()
    data = payloads.session(
        "started",
        timestamp(),
        surface=publisher.status.default_surface,
        runtime_mode=publisher.status.default_runtime_mode,
        metadata={"smoke": "true"},
    )
    made = publisher.event(
        "maestro.sessions.session.started",
        data,
        correlation={"session_id": session or f"smoke_{made_id}"},
        event_id=event_id or f"evt_smoke_{made_id}",
    )
    try:
        ack = await publisher.publish_strictly(made)
        stored = await publisher.read_back(ack)
    finally:
        await publisher.aclose()
    if msgspec.json.decode(stored) != made and not ack.duplicate:
        raise ProviderError(f"stream {ack.stream} holds another event at {ack.seq}")
    return Smoked(made["id"], made["subject"], ack.stream, ack.seq)
