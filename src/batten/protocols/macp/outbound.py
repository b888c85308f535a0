"""`GET /runs/:id/messages`: what agents sent to the runtime, captured from the stream."""

from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.graph import recipients_of

TYPES = frozenset(("participant.seen", "message.received", "message.sent", "message.send_failed"))
"""The events that messages are captured from."""
_WINDOW = 256
"""Messages that wait for their answers; older ones are complete."""


class OutboundMessage(Struct, kw_only=True, rename="camel"):
    id: str
    run_id: str
    runtime_session_id: str
    message_id: str
    message_type: str = ""
    category: Literal["session", "signal"] = "session"
    sender: str = ""
    recipients: list[str] = []
    status: Literal["queued", "accepted", "rejected"] = "accepted"
    payload_descriptor: dict[str, Any] | None = None
    """The decoded payload in `value`, without what patterns hide."""
    ack: dict[str, Any] | None = None
    """The runtime's answer, where it was seen."""
    error_message: str | None = None
    created_at: str
    accepted_at: str | None = None
    updated_at: str


class MessageCapture:
    """A fold of events into messages: a message and its answer are one row.

    It holds few messages at a time, whatever the length of the run.
    """

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}
        self._waiting: dict[str, OutboundMessage] = {}

    def take(self, event: CanonicalEvent) -> Iterator[OutboundMessage]:
        """Take the run's next event; messages that are complete come out, oldest first."""
        if event.type == "participant.seen":
            self._known[event.data["participantId"]] = True
        elif event.type in TYPES:
            self._message(event)
            if len(self._waiting) > _WINDOW:
                yield self._waiting.pop(next(iter(self._waiting)))

    def rest(self) -> Iterator[OutboundMessage]:
        """The newest messages, at the end."""
        yield from self._waiting.values()

    def _message(self, event: CanonicalEvent) -> None:
        data = event.data
        message_id = data["messageId"]
        row = self._waiting.get(message_id)
        if row is None:
            row = self._waiting[message_id] = OutboundMessage(
                id=event.id,
                run_id=event.run_id,
                runtime_session_id=data["sessionId"],
                message_id=message_id,
                created_at=event.ts,
                updated_at=event.ts,
            )
        row.updated_at = event.ts
        row.message_type = data.get("messageType") or row.message_type
        row.category = "signal" if row.message_type.startswith("Signal") else "session"
        row.sender = data.get("sender") or row.sender
        if event.type == "message.received":
            self._accept(row, event.ts)
            row.recipients = recipients_of(data, self._known)
            if "payload" in data:
                row.payload_descriptor = {"value": data["payload"]}
        elif event.type == "message.sent":
            row.ack = {
                name: data[name] for name in ("ok", "duplicate", "sessionState", "acceptedAtUnixMs")
            }
            if data["ok"]:
                self._accept(row, event.ts)
            elif row.accepted_at is None:
                row.status = "rejected"
        elif row.accepted_at is None:
            row.status = "rejected"
            row.error_message = data["errorMessage"]

    def _accept(self, row: OutboundMessage, ts: str) -> None:
        row.status, row.error_message = "accepted", None
        row.accepted_at = row.accepted_at or ts
