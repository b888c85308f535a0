"""Renders a session as Maestro messages: a response per prompt, and raw events on request."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from msgspec import Raw

from batten.agent.execution import Ended
from batten.contract.envelope import Envelope
from batten.contract.notes import Note
from batten.contract.outcomes import Outcome
from batten.journal.contract import Stored
from batten.protocols.maestro.calls import Calls
from batten.protocols.maestro.endings import Endings
from batten.protocols.maestro.frames import MaestroFrames
from batten.protocols.maestro.outgoing import Error, Message, RawAgentEvent, ResponseEnd
from batten.serve.maestro.client_sink import ClientSink
from batten.serve.renderer import Renderer


class MaestroRenderer(Renderer):
    """Shows each run of a session as it happens."""

    follows = completes = True

    def __init__(self, sink: ClientSink) -> None:
        self._sink = sink
        self.frames = MaestroFrames()
        self._endings = Endings()
        self.settled = asyncio.Event()
        """Set while no request is pending."""
        self.settled.set()
        self._sent = asyncio.Event()
        """Set whenever messages were sent."""
        self.idle = asyncio.Event()
        """Set while no response is due or open."""
        self.idle.set()
        self._holders = 0
        self._ending: list[Message] = []
        """The end of a response that is held back."""

    @contextmanager
    def end_held(self) -> Generator[None]:
        """Hold back the end of the response: what else an interrupt ends is told before it."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                ending, self._ending = self._ending, []
                self._send(ending)

    async def until_resolved(self, request_id: str) -> None:
        """Wait until the client was shown that a request is closed."""
        while request_id in self.frames.pending:
            self._sent.clear()
            await self._sent.wait()

    def show(self, stored: Stored, envelope: Envelope) -> None:
        self._raw(stored)
        self.frames.shared.asks = self._sink.serves
        messages = self.frames.feed(envelope)
        if self._sink.wants_endings:
            messages = self._endings.add(messages, envelope)
        self._send(messages)

    def child(self, tool_call_id: str) -> Renderer:
        return _ChildRenderer(self, self.frames.calls.child())

    def show_child(self, calls: Calls, stored: Stored, envelope: Envelope) -> None:
        self._raw(stored)
        self.frames.shared.asks = self._sink.serves
        self._send(self.frames.feed_child(calls, envelope))

    def beside(self, stored: Stored, envelope: Envelope) -> None:
        if not self.closed:
            self._raw(stored)

    def note(self, note: Note) -> None:
        if not self.closed:
            self._send(self.frames.note(note, room=self._sink.has_room))

    def ended(self, ended: Ended) -> None:
        if not (self.closed or ended.durable or self.idle.is_set()):
            self._send(self.frames.fail(self.redact(ended.message)))

    def last_words(self, outcome: Outcome, message: str, durable: bool) -> None:
        fatal = Error(message=self.redact(message), fatal=True, error_type="fatal")
        self._send([fatal])

    def _raw(self, stored: Stored) -> None:
        if self._sink.wants_raw:
            event = RawAgentEvent(event_type=stored.type, event=Raw(stored.body))
            self._sink.send(event)

    def _send(self, messages: list[Message]) -> None:
        is_end = any(isinstance(message, ResponseEnd) for message in messages)
        if is_end and self._holders:
            self._ending += messages
            return
        for message in messages:
            self._sink.send(message)
        if self.closed:
            return  # this is the watchdog's thread; asyncio events belong to the loop
        self._sent.set()
        if is_end:
            self.idle.set()
        if self.frames.pending:
            self.settled.clear()
        else:
            self.settled.set()


class _ChildRenderer(Renderer):
    """Shows the calls and requests of a child run."""

    def __init__(self, top: MaestroRenderer, calls: Calls) -> None:
        self._top = top
        self._calls = calls

    def show(self, stored: Stored, envelope: Envelope) -> None:
        self._top.show_child(self._calls, stored, envelope)

    def child(self, tool_call_id: str) -> Renderer:
        return _ChildRenderer(self._top, self._calls.child())
