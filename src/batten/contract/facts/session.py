"""`session.*`: facts of a session that belong to none of its runs."""

from typing import Any

from msgspec import UNSET, UnsetType

from batten.contract.facts.base import Fact
from batten.contract.outcomes import Outcome


class SessionOpened(Fact, frozen=True):
    TYPE = "session.opened"
    workspace_path: str
    task_id: str
    surface: str
    """The surface that opened it: `print`, a protocol's name, `serve`."""
    forked_from: str | UnsetType = UNSET
    """The session that this one branched from."""
    forked_at_run_id: str | UnsetType = UNSET
    forked_at_sequence: int | UnsetType = UNSET
    """The last fact of that run that belongs to this session's history."""
    identity: dict[str, str] | UnsetType = UNSET
    """Ids of those it works for, as its launcher named them."""


class SessionConfigured(Fact, frozen=True):
    """Settings from the next run on. Those not named keep their values."""

    TYPE = "session.configured"
    settings: dict[str, Any]
    sealed_artifact_id: str | UnsetType = UNSET
    """All settings unchanged and encrypted; present if redaction or size altered them."""
    changed: list[str] | UnsetType = UNSET
    """Names of the settings that differ from those before; absent from a session's first ones."""
    by: str | UnsetType = UNSET
    """Who changed them; absent for the user that resumed the session with other ones."""


class SessionUtilityStarted(Fact, frozen=True):
    """A client's own command, search, read or watch in the workspace."""

    TYPE = "session.utility_started"
    utility_id: str
    kind: str
    detail: dict[str, Any]


class SessionUtilityEnded(Fact, frozen=True):
    TYPE = "session.utility_ended"
    utility_id: str
    kind: str
    detail: dict[str, Any]


DONE = "done"
IDLE_TIMEOUT = "idle_timeout"
TTL_EXPIRED = "ttl_expired"
"""Why sessions are closed, among other reasons."""


class SessionClosed(Fact, frozen=True):
    TYPE = "session.closed"
    reason: str
    outcome: Outcome | UnsetType = UNSET
    """How its last run ended, unless that was well."""
