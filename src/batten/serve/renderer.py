"""The renderer interface that every format implements, and the formats of print mode."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import UNSET

from batten.agent.execution import Ended
from batten.contract.envelope import Envelope
from batten.contract.notes import Note
from batten.contract.outcomes import Outcome
from batten.journal.contract import Stored
from batten.protocols.json_line import encode
from batten.protocols.stream_json import FrameOptions, StreamJson, init_frame
from batten.serve.output import Output
from batten.serve.words import Redact, without_tokens

_MOST_HELD = 256
"""Frames before the first, from which on notes are left out."""

Describe = Callable[[str], dict[str, Any]]
"""Describes a session for the first frame; called only by formats that have one."""


class Renderer:
    """Shows a session in one format: its runs one after the other, then the last frame.

    Every method does nothing by default. A renderer receives whole envelopes and never reads the
    journal.
    """

    follows = False
    """Whether it receives each fact as it happens."""
    streams = False
    """Whether a program reads its frames as they happen: the run is for that reader alone."""
    completes = False
    """Whether it needs every fact before `ended`, even if its reader has stalled."""
    introduces = False
    """Whether its first frame waits for what the session's parts find out while they start."""
    unseals = False
    """Whether its client gets answers as the model wrote them. Without it a renderer shows the text
    that is stored, as a log, a file and appended pieces must."""
    closed = False
    """Whether the watchdog's thread has taken over: the loop shows nothing any more."""
    shows_endings = False
    """Whether it shows people how a run ended, so that nobody else has to."""
    load: Callable[[str], Awaitable[bytes]]
    """Reads the body of an artifact, for `complete`; set once the session is open."""
    shows_alerts = False
    """Whether it shows refused calls itself, so that no separate line is needed."""
    redact: Redact = staticmethod(without_tokens)
    """Removes secrets from errors; replaced by the session's own redactor once it is open."""

    def begin(self, session_id: str, describe: Describe) -> None:
        """The session is open; its first run is about to start."""

    def introduce(self) -> None:
        """The parts have started. Facts are shown after this, unless the process is ending."""

    def prompted(self, text: str) -> None:
        """A run has started with this prompt."""

    async def complete(self, envelope: Envelope) -> Envelope:
        """Fetch additional data for an envelope before it is shown."""
        return envelope

    def show(self, stored: Stored, envelope: Envelope) -> None:
        """Show a durable fact of the run."""

    def beside(self, stored: Stored, envelope: Envelope) -> None:
        """Show a fact of the session's own stream."""

    def child(self, tool_call_id: str) -> "Renderer | None":
        """The renderer of the child run that this call started; None hides child runs."""
        return None

    def note(self, note: Note) -> None:
        """Show a note of the run."""

    def ended(self, ended: Ended) -> None:
        """A run has ended and was shown completely."""

    def fail(self, outcome: Outcome, message: str) -> None:
        """The session ends with an outcome that belongs to no run."""

    def finish(self) -> None:
        """Write the last frame."""

    def close(self) -> None:
        """On the watchdog's thread: show nothing more from the loop."""
        self.closed = True

    def last_words(self, outcome: Outcome, message: str, durable: bool) -> None:
        """On the watchdog's thread: show the ending without the loop."""


def answer_of(ended: Ended) -> str | None:
    """The final message, or the value alone if it had to fit a schema; None without success."""
    if ended.outcome != "completed":
        return None
    value = ended.progress.structured_output
    return ended.answer if value is UNSET else msgspec.json.encode(value).decode()


class TextRenderer(Renderer):
    """The final message on stdout, or its JSON alone."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._answer: str | None = None

    def ended(self, ended: Ended) -> None:
        self._answer = answer_of(ended)

    def fail(self, outcome: Outcome, message: str) -> None:
        self._answer = None

    def finish(self) -> None:
        if self._answer is not None:
            self._output.write(self._answer.encode() + b"\n")


class EventsRenderer(Renderer):
    """The stored envelopes, byte for byte, one per line."""

    follows = streams = True

    def __init__(self, output: Output) -> None:
        self._output = output

    def show(self, stored: Stored, envelope: Envelope) -> None:
        self._output.write(stored.body + b"\n")


class JsonRenderer(Renderer):
    """The result frame only."""

    completes = unseals = True

    def __init__(self, output: Output, wanted: FrameOptions | None = None) -> None:
        self._output = output
        self._wanted = wanted or FrameOptions()
        self._codec = StreamJson("", self._wanted)
        self._durable = True
        self._finished = False
        self._began = time.monotonic()

    def begin(self, session_id: str, describe: Describe) -> None:
        self._codec = StreamJson(session_id, self._wanted)

    def prompted(self, text: str) -> None:
        self._frames(self._codec.user(text))

    def show(self, stored: Stored, envelope: Envelope) -> None:
        self._codec.run_id = envelope.run_id
        self._frames(self._codec.feed(envelope.data))

    def _frames(self, frames: list[dict[str, Any]]) -> None:
        """Dropped: this format shows only the result frame."""

    def beside(self, stored: Stored, envelope: Envelope) -> None:
        if not self.closed:
            self._frames(self._codec.feed(envelope.data))

    def child(self, tool_call_id: str) -> Renderer:
        return _ChildTotals(self._codec)

    def ended(self, ended: Ended) -> None:
        if self.closed:
            return
        if self._codec.outcome is None:
            self._frames(self._codec.fail(ended.outcome, self.redact(ended.message)))
        self._durable = self._durable and ended.durable

    def fail(self, outcome: Outcome, message: str) -> None:
        left = self._codec.fail(outcome, self.redact(message))
        self._durable = self._durable and outcome != "store"
        if not self._finished:
            self._frames(left)

    def finish(self) -> None:
        if not self._finished:
            self.closed = self._finished = True
            duration_ms = round((time.monotonic() - self._began) * 1000)
            result = self._codec.result(durable=self._durable, duration_ms=duration_ms)
            self._output.write(encode(result))

    def last_words(self, outcome: Outcome, message: str, durable: bool) -> None:
        if self._codec.outcome != outcome:
            self.fail(outcome, message)
        self._durable = durable
        self.finish()


class _ChildTotals(Renderer):
    """Adds a child run, and its own children, to the totals of the result frame."""

    def __init__(self, codec: StreamJson) -> None:
        self._codec = codec

    def show(self, stored: Stored, envelope: Envelope) -> None:
        self._codec.feed_child(envelope.data)

    def child(self, tool_call_id: str) -> Renderer:
        return self


class StreamJsonRenderer(JsonRenderer):
    """Every frame as it happens."""

    follows = streams = introduces = True

    def __init__(self, output: Output, wanted: FrameOptions | None = None) -> None:
        super().__init__(output, wanted)
        self._first: Callable[[], dict[str, Any]] | None = None
        """The fields of the first frame, until it is written."""
        self._held: list[bytes] = []
        """Frames before it."""

    def begin(self, session_id: str, describe: Describe) -> None:
        super().begin(session_id, describe)
        self._first = lambda: describe(session_id)

    def introduce(self) -> None:
        if self._first is not None:
            first, self._first = self._first, None
            self._output.write(encode(init_frame(**first())))
            for line in self._held:
                self._output.write(line)
            self._held.clear()

    def note(self, note: Note) -> None:
        if not self.closed:
            room = self._output.has_room and len(self._held) < _MOST_HELD
            self._frames(self._codec.note(note, room=room))

    def finish(self) -> None:
        self.introduce()
        super().finish()

    def _frames(self, frames: list[dict[str, Any]]) -> None:
        for frame in frames:
            if self._first is None:
                self._output.write(encode(frame))
            else:
                self._held.append(encode(frame))


def renderer_for(output_format: str | None, output: Output, wanted: FrameOptions) -> Renderer:
    """The renderer of an output format."""
    match output_format:
        case "json":
            return JsonRenderer(output)
        case "stream-json":
            return StreamJsonRenderer(output, wanted)
        case "events":
            return EventsRenderer(output)
        case _:
            return TextRenderer(output)
