"""What print mode writes to standard output, one class per format."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from batten.agent.execution import Ended
from batten.cli.output import Output
from batten.cli.words import without_secrets
from batten.contract.envelope import decode, decode_fact
from batten.contract.facts import Fact
from batten.contract.outcomes import Outcome
from batten.journal.contract import Journal, Stored
from batten.journal.recorder import load_artifact, whole_fact
from batten.protocols.stream_json import StreamJson, encode, init_frame

Describe = Callable[[str], dict[str, Any]]
"""What the first frame says of a session; asked for only where there is such a frame."""


class View(Protocol):
    """How one format shows a run."""

    def begin(self, output: Output, session_id: str, describe: Describe) -> None:
        """The session is open; its run is about to begin."""
        ...

    def follows(self, progress: str) -> bool:
        """Whether it wants each fact as it happens."""
        ...

    def show(self, output: Output, stored: Stored, journal: Journal) -> None: ...

    def end(self, output: Output, ended: Ended, journal: Journal | None) -> None: ...

    def give_up(self, output: Output, outcome: Outcome, message: str) -> None:
        """There was no run to speak of."""
        ...

    def catch_up(self, output: Output, journal: Journal, run_id: str) -> None:
        """From the watchdog's thread: show what is stored and was not shown, and then no more."""
        ...

    def last_words(self, output: Output, outcome: Outcome, message: str, durable: bool) -> None:
        """From the watchdog's thread: only what needs no loop."""
        ...


class TextView:
    """The final message; a timeline on stderr for whoever watches a terminal."""

    def __init__(self, people: Output) -> None:
        self._people = people
        self._timeline: Any = None

    def begin(self, output: Output, session_id: str, describe: Describe) -> None:
        return

    def follows(self, progress: str) -> bool:
        wanted = progress == "always" or (progress == "auto" and os.isatty(2))
        if wanted:
            from batten.cli.timeline import Timeline

            self._timeline = Timeline(color=os.isatty(2))
        return wanted

    def show(self, output: Output, stored: Stored, journal: Journal) -> None:
        for line in self._timeline.lines(decode(stored.body)):
            self._people.offer(f"{line}\n".encode(errors="replace"))

    def end(self, output: Output, ended: Ended, journal: Journal | None) -> None:
        if ended.outcome == "completed":
            output.write(ended.answer.encode() + b"\n")

    def give_up(self, output: Output, outcome: Outcome, message: str) -> None:
        return

    def catch_up(self, output: Output, journal: Journal, run_id: str) -> None:
        return

    def last_words(self, output: Output, outcome: Outcome, message: str, durable: bool) -> None:
        return


class _Following:
    """What the views share that show each fact: where they are."""

    def __init__(self) -> None:
        self._shown = -1
        self._closed = False

    def show(self, output: Output, stored: Stored, journal: Journal) -> None:
        if not self._closed:
            self._shown = stored.sequence
            self._write(output, stored, journal)

    def catch_up(self, output: Output, journal: Journal, run_id: str) -> None:
        self._closed = True
        while page := journal.read(run_id, after=self._shown):
            for stored in page:
                self._write(output, stored, journal)
            self._shown = page[-1].sequence

    def _write(self, output: Output, stored: Stored, journal: Journal) -> None:
        raise NotImplementedError


class EventsView(_Following):
    """The stored envelopes, byte for byte, one a line."""

    def begin(self, output: Output, session_id: str, describe: Describe) -> None:
        return

    def follows(self, progress: str) -> bool:
        return True

    def _write(self, output: Output, stored: Stored, journal: Journal) -> None:
        output.write(stored.body + b"\n")

    def end(self, output: Output, ended: Ended, journal: Journal | None) -> None:
        return

    def give_up(self, output: Output, outcome: Outcome, message: str) -> None:
        return

    def last_words(self, output: Output, outcome: Outcome, message: str, durable: bool) -> None:
        return


class JsonView(_Following):
    """Exactly the result frame."""

    def __init__(self) -> None:
        super().__init__()
        self._codec = StreamJson("")

    def begin(self, output: Output, session_id: str, describe: Describe) -> None:
        self._codec = StreamJson(session_id)

    def follows(self, progress: str) -> bool:
        return False

    def _write(self, output: Output, stored: Stored, journal: Journal) -> None:
        self._codec.feed(_fact(stored, journal))

    def end(self, output: Output, ended: Ended, journal: Journal | None) -> None:
        if ended.durable and journal is not None:
            self.catch_up(output, journal, ended.run_id)
        if self._codec.outcome is None:
            self._codec.fail(ended.outcome, without_secrets(ended.message))
        output.write(encode(self._codec.result(durable=ended.durable)))

    def give_up(self, output: Output, outcome: Outcome, message: str) -> None:
        self.last_words(output, outcome, message, durable=True)

    def last_words(self, output: Output, outcome: Outcome, message: str, durable: bool) -> None:
        if self._codec.outcome is None:
            self._codec.fail(outcome, without_secrets(message))
        output.write(encode(self._codec.result(durable=durable)))


class StreamJsonView(JsonView):
    """Every frame as it happens."""

    def begin(self, output: Output, session_id: str, describe: Describe) -> None:
        super().begin(output, session_id, describe)
        output.write(encode(init_frame(**describe(session_id))))

    def follows(self, progress: str) -> bool:
        return True

    def _write(self, output: Output, stored: Stored, journal: Journal) -> None:
        for frame in self._codec.feed(_fact(stored, journal)):
            output.write(encode(frame))


def _fact(stored: Stored, journal: Journal) -> Fact:
    return whole_fact(decode_fact(stored.body), partial(load_artifact, journal))


def view_of(output_format: str, people: Output) -> View:
    """`people` is standard error, for what is shown beside the output."""
    match output_format:
        case "json":
            return JsonView()
        case "stream-json":
            return StreamJsonView()
        case "events":
            return EventsView()
        case _:
            return TextView(people)
