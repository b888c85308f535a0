"""Subscriptions: who is told what, and the secrets that sign it. Secrets are stored sealed."""

import base64
import logging
import os
import re
from collections.abc import Sequence
from typing import Any, Literal, get_args

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from batten.contract.envelope import timestamp
from batten.contract.errors import CallerError, NotFound, Refused
from batten.contract.ids import Minter
from batten.contract.outcomes import Outcome
from batten.journal.sqlite.database import Database
from batten.redact.seal import SealKey
from batten.sinks.store import SinkStore
from batten.tools.outbound import check_url

WebhookEvent = Literal[
    "run.queued",
    "run.started",
    "run.suspended",
    "run.resumed",
    "run.completed",
    "run.failed",
    "run.cancelled",
    "approval.requested",
    "approval.resolved",
    "task.created",
    "policy.tool_blocked",
    "cost.budget_exceeded",
]
EVENTS: tuple[WebhookEvent, ...] = get_args(WebhookEvent)
OVERLAP_S = 86_400
"""How long a replaced secret still signs, beside the new one."""
_MOST = 100
_LONGEST_SECRET = 255
_LONGEST_URL = 2048
_MADE = "whsec_"
_log = logging.getLogger("batten.sinks")
_SECRET = re.compile(r"[\x21-\x7e]+")


class Secret(Struct, frozen=True):
    value: str
    until: float = 0.0
    """When it ends, in seconds of the epoch; 0 for the current one."""


class Subscription(Struct, frozen=True, kw_only=True):
    """A receiver and what it wants to hear."""

    id: str
    url: str
    events: tuple[WebhookEvent, ...] = ()
    """Empty for all."""
    secrets: tuple[Secret, ...] = ()
    """The current one first."""
    active: bool = True
    body: Literal["thin", "full"] = "full"
    """`thin`: ids only, for a receiver that asks for the rest."""
    tasks: tuple[str, ...] = ()
    workspaces: tuple[str, ...] = ()
    """Directories: runs in them or below."""
    outcomes: tuple[Outcome, ...] = ()
    """Only the endings of runs with these outcomes; empty for any event."""
    created_at: str = ""
    updated_at: str = ""

    def signing(self, now: float) -> list[str]:
        """The secrets that sign now, the current one first."""
        return [one.value for one in self.secrets if not one.until or one.until > now]


class Change(Struct, frozen=True, kw_only=True):
    """What is to change; fields that are not given stay."""

    url: str | UnsetType = UNSET
    events: tuple[WebhookEvent, ...] | UnsetType = UNSET
    secret: str | UnsetType = UNSET
    active: bool | UnsetType = UNSET
    body: Literal["thin", "full"] | UnsetType = UNSET
    tasks: tuple[str, ...] | UnsetType = UNSET
    workspaces: tuple[str, ...] | UnsetType = UNSET
    outcomes: tuple[Outcome, ...] | UnsetType = UNSET


def sink_name(subscription_id: str) -> str:
    return f"webhook:{subscription_id}"


class Subscriptions:
    """The subscriptions that clients of a service made."""

    def __init__(self, store: SinkStore, home: str) -> None:
        self._store = store
        self._home = home
        self._minter = Minter()

    def create(self, wanted: Change, position: int) -> tuple[Subscription, str]:
        """Subscribe from this position on. Returns it with its secret, made here if none is
        given.
        """
        if wanted.url is UNSET:
            raise CallerError("a webhook needs `url`")
        [(count,)] = self._store.all("SELECT count(*) FROM webhooks")
        if count >= _MOST:
            raise CallerError(f"there are {_MOST} webhooks already; delete one first")
        secret = new_secret() if wanted.secret is UNSET else wanted.secret
        now = timestamp()
        blank = Subscription(
            id=f"whk_{self._minter.mint()}", url=wanted.url, created_at=now, updated_at=now
        )
        made = self._changed(blank, replace(wanted, secret=secret))
        # First the cursor: a reader that sees the subscription must not choose one.
        self._store.add(sink_name(made.id), position)
        with self._store.writing(durable=True) as db:
            self._put(db, made)
        return made, secret

    def change(self, subscription_id: str, wanted: Change) -> Subscription:
        """A new secret signs at once; the old one signs too for a day. What is the same already
        counts as no change.

        One transaction: two changes at once, in two processes, are both kept.
        """
        with self._store.writing(durable=True) as db:
            before = self.find(subscription_id)
            made = self._changed(before, wanted)
            if made == before:
                return before
            made = replace(made, updated_at=timestamp())
            self._put(db, made)
        return made

    def _changed(self, before: Subscription, wanted: Change) -> Subscription:
        given: dict[str, Any] = {
            name: value
            for name in wanted.__struct_fields__
            if (value := getattr(wanted, name)) is not UNSET
        }
        secret = given.pop("secret", None)
        if "url" in given:
            check_receiver(given["url"])
        check_workspaces(given.get("workspaces", ()))
        if secret is not None and secret not in [one.value for one in before.secrets[:1]]:
            check_secret(secret)
            now = self._store.now()
            old = [
                Secret(one.value, one.until or now + OVERLAP_S)
                for one in before.secrets
                if not one.until or one.until > now
            ]
            given["secrets"] = (Secret(secret), *old[:3])
        return replace(before, **given)

    def delete(self, subscription_id: str) -> bool:
        """Whether there was one. Its messages go with it."""
        with self._store.writing(durable=True) as db:
            db.execute("DELETE FROM webhooks WHERE id = ?", (subscription_id,))
            found = db.changes() > 0
        if found:
            self._store.remove(sink_name(subscription_id))
        return found

    def find(self, subscription_id: str) -> Subscription:
        """Raises `Refused` for one that another key sealed."""
        rows = self._store.all("SELECT body FROM webhooks WHERE id = ?", (subscription_id,))
        if not rows:
            raise NotFound(f"there is no webhook {subscription_id}")
        return self._read(subscription_id, rows[0][0])

    def all(self, *, notes: bool = False) -> list[Subscription]:
        """Those that can be read: without a secret nothing is sent. `notes`: store why others
        cannot, for `batten sinks list`.
        """
        found: list[Subscription] = []
        for number, body in self._store.all("SELECT id, body FROM webhooks ORDER BY id"):
            try:
                found.append(self._read(number, body))
            except Refused as error:
                problem = f"{error}: put that file back, or delete the webhook"
                if notes and self._store.trouble(sink_name(number), problem):
                    _log.warning("webhook %s: %s", number, problem)
        return found

    def _read(self, number: str, body: bytes) -> Subscription:
        plain = SealKey.find(self._home).unseal(body, number.encode())
        return msgspec.json.decode(plain, type=Subscription)

    def _put(self, db: Database, made: Subscription) -> None:
        sealed = SealKey.load(self._home).seal(msgspec.json.encode(made), made.id.encode())
        db.execute("INSERT OR REPLACE INTO webhooks (id, body) VALUES (?, ?)", (made.id, sealed))


def new_secret() -> str:
    """As Standard Webhooks spells secrets."""
    return _MADE + base64.b64encode(os.urandom(24)).decode()


def check_receiver(url: str) -> None:
    """Raise `CallerError` for an address that cannot receive."""
    if len(url) > _LONGEST_URL:
        raise CallerError(f"`url` has more than {_LONGEST_URL} characters")
    if any(letter.isspace() or not letter.isprintable() for letter in url):
        raise CallerError("`url` holds a space or a control character")
    host = check_url(url).hostname or ""
    try:
        host.encode("idna")
    except UnicodeError:
        raise CallerError(f"`url` names no possible host: {host!r}") from None


def check_workspaces(directories: Sequence[str]) -> None:
    """Raise `CallerError` for a directory that no run can be in."""
    for directory in directories:
        if not directory.startswith("/"):
            raise CallerError(f"`workspaces` are absolute paths, and {directory!r} is not one")


def check_secret(secret: str) -> None:
    if not 1 <= len(secret) <= _LONGEST_SECRET or not _SECRET.fullmatch(secret):
        raise CallerError(f"`secret` must be 1 to {_LONGEST_SECRET} visible ASCII characters")


def secrets_of(values: Sequence[str]) -> tuple[Secret, ...]:
    """Secrets of settings: all of them sign."""
    for value in values:
        check_secret(value)
    return tuple(Secret(value) for value in values)
