"""Settings of a shared runtime: idle timeouts and buffer sizes."""

from collections.abc import Mapping

from msgspec import Struct

from batten.protocols.maestro.roster import Most, Timings
from batten.serve.maestro.limits import number_of

_SWEEP_MS = 60_000


class Sharing(Struct, frozen=True, kw_only=True):
    timings: Timings = Timings()
    most: Most = Most()
    ring: int = 512
    """Messages kept for clients that attach later."""
    runtime_idle_ms: int = 1_800_000
    """How long a hosted session without readers and work stays open."""
    mailbox: int = 128
    """Unread messages that one subscription may have."""


VARIABLES = {
    "heartbeat": "MAESTRO_HEADLESS_CONNECTION_HEARTBEAT_INTERVAL_MS",
    "connection_idle": "MAESTRO_HEADLESS_CONNECTION_IDLE_MS",
    "subscription_idle": "MAESTRO_HEADLESS_SUBSCRIPTION_IDLE_MS",
    "runtime_idle": "MAESTRO_HEADLESS_RUNTIME_IDLE_MS",
    "connections": "BATTEN_RUNNER_MAX_CONNECTIONS",
    "subscriptions": "BATTEN_RUNNER_MAX_SUBSCRIPTIONS",
    "ring": "MAESTRO_HEADLESS_RUNTIME_EVENT_BUFFER",
    "mailbox": "MAESTRO_HEADLESS_SUBSCRIBER_QUEUE",
}


def sharing_of(environ: Mapping[str, str]) -> Sharing:
    def setting(name: str, usual: int) -> int:
        text = environ.get(VARIABLES[name], "").strip()
        return number_of(text, VARIABLES[name]) if text else usual

    usual, usual_times = Sharing(), Timings()
    heartbeat_ms = setting("heartbeat", usual_times.heartbeat_ms)
    connection_ms = setting("connection_idle", 3 * heartbeat_ms)
    subscription_ms = setting("subscription_idle", usual_times.subscription_idle_ms)
    return Sharing(
        timings=Timings(
            heartbeat_ms=heartbeat_ms,
            connection_idle_ms=connection_ms,
            subscription_idle_ms=subscription_ms,
            sweep_ms=min(_SWEEP_MS, connection_ms, subscription_ms),
        ),
        most=Most(
            connections=setting("connections", usual.most.connections),
            subscriptions=setting("subscriptions", usual.most.subscriptions),
        ),
        runtime_idle_ms=setting("runtime_idle", usual.runtime_idle_ms),
        ring=setting("ring", usual.ring),
        mailbox=setting("mailbox", usual.mailbox),
    )
