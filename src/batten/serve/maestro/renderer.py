"""A session as Maestro's messages: a response for each prompt, and raw events to who asks."""

import asyncio

from msgspec import Raw

from batten.agent.execution import Ended
from batten.contract.envelope import Envelope
from batten.contract.notes import Note
from batten.contract.outcomes import Outcome
from batten.journal.contract import Journal, Stored
from batten.journal.recorder import whole_envelope
from batten.protocols.maestro.calls import Calls
from batten.protocols.maestro.endings import with_ending
from batten.protocols.maestro.frames import MaestroFrames
from batten.protocols.maestro.outgoing import Error, Message, RawAgentEvent, ResponseEnd
from batten.serve.children import Children
from batten.serve.following import Following
from batten.serve.maestro.client_sink import ClientSink
from batten.serve.renderer import Describe


class MaestroRenderer(Following):
    """Shows each run of a session as it happens."""

    def __init__(self, sink: ClientSink, group: asyncio.TaskGroup) -> None:
        super().__init__()
        self._sink = sink
        self._children: Children[Calls] | None = Children(
            group, lambda calls, _: calls.child(), self._show_child, sink.room
        )
        self.frames = MaestroFrames()
        self.settled = asyncio.Event()
        """Set while no request waits."""
        self.settled.set()
        self._said = asyncio.Event()
        """Set whenever something is said."""
        self.idle = asyncio.Event()
        """Set while no prompt was taken whose response has not ended."""
        self.idle.set()

    async def until_resolved(self, request_id: str) -> None:
        """Wait until a request waits no more, and that was said."""
        while request_id in self.frames.pending:
            self._said.clear()
            await self._said.wait()

    def begin(self, session_id: str, describe: Describe) -> None:
        return

    def prompted(self, text: str) -> None:
        self._shown = -1

    def beside(self, stored: Stored, journal: Journal) -> None:
        if not self._closed:
            self._raw(stored)

    def note(self, note: Note) -> None:
        if not self._closed:
            self._send(self.frames.note(note, room=self._sink.has_room))

    def ended(self, ended: Ended, journal: Journal) -> None:
        if self._closed:
            return
        if ended.durable:
            self._show_rest(journal, ended.run_id)
        elif not self.idle.is_set():
            self._send(self.frames.fail(self.redact(ended.message)))
        if self._children is not None:
            self._children.leave()

    def fail(self, outcome: Outcome, message: str) -> None:
        return

    def finish(self) -> None:
        return

    def catch_up(self, journal: Journal, run_id: str) -> None:
        self._children = None  # tasks are the loop's, and this is not its thread
        super().catch_up(journal, run_id)

    def last_words(self, outcome: Outcome, message: str, durable: bool) -> None:
        said = Error(message=self.redact(message), fatal=True, error_type="fatal")
        self._send([said])

    def _feed(self, stored: Stored, journal: Journal) -> None:
        envelope = whole_envelope(stored, journal)
        if self._children is not None:
            self._children.see(self.frames.calls, envelope, journal)
        self._raw(stored)
        self.frames.asks = self._sink.serves
        messages = self.frames.feed(envelope)
        if self._sink.wants_endings:
            messages = with_ending(messages, envelope)
        self._send(messages)

    def _show_child(self, calls: Calls, stored: Stored, envelope: Envelope) -> None:
        if not self._closed:
            self._raw(stored)
            self.frames.asks = self._sink.serves
            self._send(self.frames.feed_child(calls, envelope))

    def _raw(self, stored: Stored) -> None:
        if self._sink.wants_raw:
            event = RawAgentEvent(event_type=stored.type, event=Raw(stored.body))
            self._sink.send(event)

    def _send(self, messages: list[Message]) -> None:
        for message in messages:
            self._sink.send(message)
        if self._closed:
            return  # who waits is the loop's, and this is not its thread
        self._said.set()
        if any(isinstance(message, ResponseEnd) for message in messages):
            self.idle.set()
        if self.frames.pending:
            self.settled.clear()
        else:
            self.settled.set()
