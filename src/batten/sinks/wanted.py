"""Whether a home has sinks at all: a few looks, so that runs without any load nothing for them."""

import os
from collections.abc import Mapping
from typing import Any

_SWITCHES = ("MAESTRO_EVENT_BUS", "MAESTRO_AUDIT_BUS")
_ADDRESSES = ("MAESTRO_EVENT_BUS_URL", "EVALOPS_NATS_URL", "NATS_URL")
_OFF = ("0", "false", "no", "off")


def has_sinks(home: str, environ: Mapping[str, str], settings: Mapping[str, Any]) -> bool:
    """True if settings, variables or subscriptions of a service may name one."""
    return (
        bool(settings)
        or _has_bus(environ)
        or bool(environ.get("OTEL_ENABLED"))
        or os.path.exists(os.path.join(home, "sinks.db"))
    )


def _has_bus(environ: Mapping[str, str]) -> bool:
    switch = next((value for name in _SWITCHES if (value := environ.get(name, "").strip())), "")
    if switch.lower() in _OFF:
        return False
    return bool(switch) or any(environ.get(name) for name in _ADDRESSES)
