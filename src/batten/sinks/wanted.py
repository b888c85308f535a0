"""Whether a home has sinks at all: a few looks, so that runs without any load nothing for them."""

import os
from collections.abc import Mapping
from typing import Any

_VARIABLES = (
    *("MAESTRO_EVENT_BUS", "MAESTRO_AUDIT_BUS", "MAESTRO_EVENT_BUS_URL", "EVALOPS_NATS_URL"),
    *("NATS_URL", "OTEL_ENABLED"),
)


def has_sinks(home: str, environ: Mapping[str, str], settings: Mapping[str, Any]) -> bool:
    """True if settings, variables or subscriptions of a service may name one."""
    return (
        bool(settings)
        or any(environ.get(name) for name in _VARIABLES)
        or os.path.exists(os.path.join(home, "sinks.db"))
    )
