"""One entry of the audit log."""

from typing import Any, Literal

from msgspec import Struct

ActorType = Literal["key", "local", "system", "run"]


class NewEntry(Struct, frozen=True, kw_only=True):
    """What was done, by whom, to what."""

    created_at: str
    actor: str
    actor_type: ActorType
    """`key`: a client of the service; `local`: a user of this machine; `system`: the program."""
    action: str
    resource: str
    resource_id: str | None = None
    details: dict[str, Any] = {}
    request_id: str | None = None


class AuditEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """An entry with its number, which counts from 1."""

    id: str
    actor: str
    actor_type: ActorType
    action: str
    resource: str
    resource_id: str | None
    details: dict[str, Any]
    request_id: str | None
    created_at: str
