"""What print mode writes to standard output, one class per format."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from batten.agent.execution import Ended
from batten.contract.envelope import decode, decode_fact
from batten.contract.facts import Fact
from batten.contract.notes import Note
from batten.contract.outcomes import Outcome
from batten.journal.contract import Journal, Stored
from batten.journal.recorder import load_artifact, whole_fact
from batten.protocols.stream_json import FrameOptions, StreamJson, encode, init_frame
from batten.serve.following import Following
from batten.serve.output import Output
from batten.serve.words import Redact, without_tokens

Describe = Callable[[str], dict[str, Any]]
"""What the first frame says of a session; asked for only where there is such a frame."""


class Renderer(Protocol):
    """How one format shows a session: its runs one after the other, then its last frame."""

    follows: bool
    """Whether it wants each fact as it happens."""

    def begin(self, session_id: str, describe: Describe) -> None:
        """The session is open; its first run is about to begin."""
        ...

    def prompted(self, text: str) -> None:
        """A run has begun with these words."""
        ...

    def show(self, stored: Stored, journal: Journal) -> None:
        """A fact of the run, once it is durable."""
        ...

    def beside(self, stored: Stored, journal: Journal) -> None:
        """A fact of the session that belongs to none of its runs."""
        ...

    def note(self, note: Note) -> None: ...

    def ended(self, ended: Ended, journal: Journal) -> None:
        """A run has ended, and all of it was shown."""
        ...

    def fail(self, outcome: Outcome, message: str) -> None:
        """It ends in a way that no run tells of."""
        ...

    def finish(self) -> None:
        """Nothing more will happen."""
        ...

    def catch_up(self, journal: Journal, run_id: str) -> None:
        """From the watchdog's thread: show what is stored and was not shown, and then no more."""
        ...

    def last_words(self, outcome: Outcome, message: str, durable: bool) -> None:
        """From the watchdog's thread: only what needs no loop."""
        ...


class PrintRenderer(Renderer, Protocol):
    """A renderer that is there before the session: its redactor comes with the session."""

    redact: Redact


class _Silent:
    """What a renderer does where its format has nothing to say."""

    follows = False

    def __init__(self, output: Output) -> None:
        self._output = output
        self.redact: Redact = without_tokens

    def begin(self, session_id: str, describe: Describe) -> None:
        return

    def prompted(self, text: str) -> None:
        return

    def show(self, stored: Stored, journal: Journal) -> None:
        return

    def beside(self, stored: Stored, journal: Journal) -> None:
        return

    def note(self, note: Note) -> None:
        return

    def ended(self, ended: Ended, journal: Journal) -> None:
        return

    def fail(self, outcome: Outcome, message: str) -> None:
        return

    def finish(self) -> None:
        return

    def catch_up(self, journal: Journal, run_id: str) -> None:
        return

    def last_words(self, outcome: Outcome, message: str, durable: bool) -> None:
        return


class TextRenderer(_Silent):
    """The final message; a timeline on stderr for whoever watches a terminal."""

    def __init__(self, output: Output, people: Output, progress: str) -> None:
        super().__init__(output)
        self._people = people
        self._answer: str | None = None
        self.follows = progress == "always" or (progress == "auto" and os.isatty(2))
        if self.follows:
            from batten.serve.timeline import Timeline

            self._timeline = Timeline(color=os.isatty(2))

    def show(self, stored: Stored, journal: Journal) -> None:
        for line in self._timeline.lines(decode(stored.body)):
            self._people.offer(f"{line}\n".encode(errors="replace"))

    def ended(self, ended: Ended, journal: Journal) -> None:
        self._answer = ended.answer if ended.outcome == "completed" else None

    def fail(self, outcome: Outcome, message: str) -> None:
        self._answer = None

    def finish(self) -> None:
        if self._answer is not None:
            self._output.write(self._answer.encode() + b"\n")


class _Printing(Following, _Silent):
    """What the renderers share that show each fact."""

    def __init__(self, output: Output) -> None:
        Following.__init__(self)
        _Silent.__init__(self, output)

    def prompted(self, text: str) -> None:
        self._shown = -1


class EventsRenderer(_Printing):
    """The stored envelopes, byte for byte, one a line."""

    def _feed(self, stored: Stored, journal: Journal) -> None:
        self._output.write(stored.body + b"\n")


class JsonRenderer(_Printing):
    """Exactly the result frame."""

    follows = False

    def __init__(self, output: Output, wanted: FrameOptions | None = None) -> None:
        super().__init__(output)
        self._wanted = wanted or FrameOptions()
        self._codec = StreamJson("", self._wanted)
        self._durable = True
        self._finished = False

    def begin(self, session_id: str, describe: Describe) -> None:
        self._codec = StreamJson(session_id, self._wanted)

    def prompted(self, text: str) -> None:
        super().prompted(text)
        self._frames(self._codec.user(text))

    def _feed(self, stored: Stored, journal: Journal) -> None:
        self._frames(self._codec.feed(_fact(stored, journal)))

    def _frames(self, frames: list[dict[str, Any]]) -> None:
        """Only the last one is shown here."""

    def beside(self, stored: Stored, journal: Journal) -> None:
        if not self._closed:
            self._feed(stored, journal)

    def ended(self, ended: Ended, journal: Journal) -> None:
        if self._closed:
            return
        if ended.durable:
            self._show_rest(journal, ended.run_id)
        if self._codec.outcome is None:
            self._frames(self._codec.fail(ended.outcome, self.redact(ended.message)))
        self._durable = self._durable and ended.durable

    def fail(self, outcome: Outcome, message: str) -> None:
        left = self._codec.fail(outcome, self.redact(message))
        if not self._finished:
            self._frames(left)

    def finish(self) -> None:
        if not self._finished:
            self._closed = self._finished = True
            self._output.write(encode(self._codec.result(durable=self._durable)))

    def last_words(self, outcome: Outcome, message: str, durable: bool) -> None:
        if self._codec.outcome != outcome:
            self.fail(outcome, message)
        self._durable = durable
        self.finish()


class StreamJsonRenderer(JsonRenderer):
    """Every frame as it happens."""

    follows = True

    def begin(self, session_id: str, describe: Describe) -> None:
        super().begin(session_id, describe)
        self._output.write(encode(init_frame(**describe(session_id))))

    def note(self, note: Note) -> None:
        if not self._closed:
            self._frames(self._codec.note(note, room=self._output.has_room))

    def _frames(self, frames: list[dict[str, Any]]) -> None:
        for frame in frames:
            self._output.write(encode(frame))


def _fact(stored: Stored, journal: Journal) -> Fact:
    return whole_fact(decode_fact(stored.body), partial(load_artifact, journal))


def renderer_for(
    output_format: str | None,
    output: Output,
    people: Output,
    *,
    wanted: FrameOptions,
    progress: str,
) -> PrintRenderer:
    """`people` is standard error, for what is shown beside the output."""
    match output_format:
        case "json":
            return JsonRenderer(output)
        case "stream-json":
            return StreamJsonRenderer(output, wanted)
        case "events":
            return EventsRenderer(output)
        case _:
            return TextRenderer(output, people, progress)
