"""Whether a home has sinks at all: a few looks, so that runs without any load nothing for them."""

import os
from collections.abc import Mapping
from typing import Any

from batten.contract.identity import NO, SWITCHES, first

_ADDRESSES = ("MAESTRO_EVENT_BUS_URL", "EVALOPS_NATS_URL", "NATS_URL")


def has_sinks(home: str, environ: Mapping[str, str], settings: Mapping[str, Any]) -> bool:
    """True if settings, variables or subscriptions of a service may name one."""
    return (
        bool(settings)
        or _has_bus(environ)
        or bool(environ.get("OTEL_ENABLED"))
        or os.path.exists(os.path.join(home, "sinks.db"))
    )


def _has_bus(environ: Mapping[str, str]) -> bool:
    switch = first(environ, SWITCHES)
    if switch.lower() in NO:
        return False
    return bool(switch) or any(environ.get(name) for name in _ADDRESSES)
