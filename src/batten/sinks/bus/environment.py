"""Whether the event bus is on, and where it is: decided by variables alone, as launchers set them.

Settings fill in for variables that are not set.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from batten.contract.identity import HARD_OFF, NO, SWITCHES, YES, first, identity_of
from batten.sinks.bus.correlation import runtime_mode_of, surface_of

URL = ("MAESTRO_EVENT_BUS_URL", "EVALOPS_NATS_URL", "NATS_URL")
TOKEN = ("MAESTRO_EVENT_BUS_TOKEN", "NATS_TOKEN")
USER = ("MAESTRO_EVENT_BUS_USER", "NATS_USER")
PASSWORD = ("MAESTRO_EVENT_BUS_PASSWORD", "NATS_PASSWORD")
SOURCE = ("MAESTRO_EVENT_BUS_SOURCE",)
DEFAULT_SOURCE = "maestro"
MISSING_URL = "missing nats url"

_MANAGED = ("MAESTRO_EVALOPS_ACCESS_TOKEN",)
_FEATURES = ("EVALOPS_FEATURE_FLAGS_PATH",)
_KILL_SWITCH = "platform.kill_switches.maestro.platform_events"
_ROLLOUT = "maestro.platform_events.publisher_enabled"
_LARGEST_SNAPSHOT = 1 << 20


class BusStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Whether events are published, and why or why not."""

    enabled: bool
    reason: str
    nats_url: str | UnsetType = UNSET
    source: str
    tenant_id: str | UnsetType = UNSET
    default_surface: str
    default_runtime_mode: str

    @property
    def publishes(self) -> bool:
        """Whether events reach a server: without an address publishing does nothing."""
        return self.enabled and self.nats_url is not UNSET


class Credentials(Struct, frozen=True):
    """How to connect; another value means another connection."""

    url: str
    token: str = ""
    user: str = ""
    password: str = ""


def credentials_of(environ: Mapping[str, str], url: str = "") -> Credentials:
    """`url` instead of that in the environment."""
    return Credentials(
        url or first(environ, URL),
        first(environ, TOKEN),
        first(environ, USER),
        first(environ, PASSWORD),
    )


def bus_status(environ: Mapping[str, str]) -> BusStatus:
    """The decision: a flag of 0 beats everything; else a flag of 1, an address or managed routing
    turns the bus on. `MAESTRO_TELEMETRY` has no part in it.
    """
    identity = identity_of(environ)
    url, organization = first(environ, URL), identity.get("organization_id", "")
    reason = _reason(environ, has_url=bool(url), organization=organization)
    enabled = reason in ("nats", "managed evalops routing", "flag enabled")
    return BusStatus(
        enabled=enabled,
        reason=MISSING_URL if enabled and not url else reason,
        nats_url=url or UNSET,
        source=first(environ, SOURCE) or DEFAULT_SOURCE,
        tenant_id=organization or UNSET,
        default_surface=surface_of(identity.get("surface", "")),
        default_runtime_mode=runtime_mode_of(identity.get("runtime_mode", "")),
    )


def _reason(environ: Mapping[str, str], *, has_url: bool, organization: str) -> str:
    flag = tri_state(first(environ, SWITCHES))
    is_managed = bool(first(environ, _MANAGED) and organization)
    if tri_state(first(environ, HARD_OFF)):
        return "internal telemetry disabled"
    if flag is False:
        return "flag disabled"
    if is_managed:
        features = _features(first(environ, _FEATURES))
        if features.get(_KILL_SWITCH) is True:
            return "platform events kill switch enabled"
        if features.get(_ROLLOUT) is False:
            return "platform events rollout disabled"
    if has_url:
        return "nats"
    if is_managed:
        return "managed evalops routing"
    return "flag enabled" if flag else "disabled"


def tri_state(value: str) -> bool | None:
    """True, false, or None for anything else."""
    lower = value.strip().lower()
    if lower in YES:
        return True
    return False if lower in NO else None


class _Flag(Struct):
    enabled: bool | None = None
    value: Any = None


class _Snapshot(Struct):
    flags: dict[str, bool | _Flag | None]


def _features(path: str) -> dict[str, bool]:
    """The flags in a snapshot file: `{name: true}`, or the same under `flags`, each a value or an
    object with `enabled`. A file that cannot be read sets none.
    """
    if not path:
        return {}
    try:
        if os.path.getsize(path) > _LARGEST_SNAPSHOT:
            return {}
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return {}
    flags: dict[str, bool | _Flag | None] = {}
    try:
        flags = msgspec.json.decode(data, type=_Snapshot).flags
    except (msgspec.MsgspecError, ValueError):
        with suppress(msgspec.MsgspecError, ValueError):
            flags = msgspec.json.decode(data, type=dict[str, bool | _Flag | None])
    found = {name: _is_on(value) for name, value in flags.items()}
    return {name: is_on for name, is_on in found.items() if is_on is not None}


def _is_on(flag: bool | _Flag | None) -> bool | None:
    if not isinstance(flag, _Flag):
        return flag
    if flag.enabled is not None:
        return flag.enabled
    return flag.value if isinstance(flag.value, bool) else None
