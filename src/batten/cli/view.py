"""What print mode writes to standard output, one class per format."""

import os
from collections.abc import Callable
from typing import Any, Protocol

from batten.agent.execution import Ended
from batten.cli.output import Output, say
from batten.contract.envelope import decode, decode_fact
from batten.contract.outcomes import Outcome
from batten.journal.contract import Journal, Stored
from batten.protocols.stream_json import StreamJson, encode, init_frame
from batten.session.history import facts_of

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

    def show(self, output: Output, stored: Stored) -> None: ...

    def end(self, output: Output, ended: Ended, journal: Journal | None) -> None: ...

    def give_up(self, output: Output, outcome: Outcome, message: str) -> None:
        """There was no run to speak of."""
        ...

    def last_words(self, output: Output, outcome: Outcome, message: str, durable: bool) -> None:
        """From the watchdog's thread: only what needs no loop."""
        ...


class TextView:
    """The final message; a timeline on stderr for whoever watches a terminal."""

    def __init__(self) -> None:
        self._timeline: Any = None

    def begin(self, output: Output, session_id: str, describe: Describe) -> None:
        return

    def follows(self, progress: str) -> bool:
        wanted = progress == "always" or (progress == "auto" and os.isatty(2))
        if wanted:
            from batten.cli.timeline import Timeline

            self._timeline = Timeline(color=os.isatty(2))
        return wanted

    def show(self, output: Output, stored: Stored) -> None:
        for line in self._timeline.lines(decode(stored.body)):
            say(line)

    def end(self, output: Output, ended: Ended, journal: Journal | None) -> None:
        if ended.outcome == "completed":
            output.write(ended.answer.encode() + b"\n")

    def give_up(self, output: Output, outcome: Outcome, message: str) -> None:
        return

    def last_words(self, output: Output, outcome: Outcome, message: str, durable: bool) -> None:
        return


class EventsView:
    """The stored envelopes, byte for byte, one a line."""

    def begin(self, output: Output, session_id: str, describe: Describe) -> None:
        return

    def follows(self, progress: str) -> bool:
        return True

    def show(self, output: Output, stored: Stored) -> None:
        output.write(stored.body + b"\n")

    def end(self, output: Output, ended: Ended, journal: Journal | None) -> None:
        return

    def give_up(self, output: Output, outcome: Outcome, message: str) -> None:
        return

    def last_words(self, output: Output, outcome: Outcome, message: str, durable: bool) -> None:
        return


class JsonView:
    """Exactly the result frame."""

    def __init__(self) -> None:
        self._codec = StreamJson("")

    def begin(self, output: Output, session_id: str, describe: Describe) -> None:
        self._codec = StreamJson(session_id)

    def follows(self, progress: str) -> bool:
        return False

    def show(self, output: Output, stored: Stored) -> None:
        return

    def end(self, output: Output, ended: Ended, journal: Journal | None) -> None:
        if ended.durable and journal is not None:
            for fact in facts_of(journal, ended.run_id):
                self._codec.feed(fact)
        else:
            self._codec.fail(ended.outcome, ended.message)
        output.write(encode(self._codec.result(durable=ended.durable)))

    def give_up(self, output: Output, outcome: Outcome, message: str) -> None:
        self.last_words(output, outcome, message, durable=True)

    def last_words(self, output: Output, outcome: Outcome, message: str, durable: bool) -> None:
        self._codec.fail(outcome, message)
        output.write(encode(self._codec.result(durable=durable)))


class StreamJsonView(JsonView):
    """Every frame as it happens."""

    def begin(self, output: Output, session_id: str, describe: Describe) -> None:
        super().begin(output, session_id, describe)
        output.write(encode(init_frame(**describe(session_id))))

    def follows(self, progress: str) -> bool:
        return True

    def show(self, output: Output, stored: Stored) -> None:
        for frame in self._codec.feed(decode_fact(stored.body)):
            output.write(encode(frame))

    def end(self, output: Output, ended: Ended, journal: Journal | None) -> None:
        if self._codec.outcome is None:
            self._codec.fail(ended.outcome, ended.message)
        output.write(encode(self._codec.result(durable=ended.durable)))


def view_of(output_format: str) -> View:
    match output_format:
        case "json":
            return JsonView()
        case "stream-json":
            return StreamJsonView()
        case "events":
            return EventsView()
        case _:
            return TextView()
