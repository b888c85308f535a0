"""A session as Heddle's frames: the events of each send, and its result."""

from collections.abc import Callable
from typing import Any

from batten.agent.execution import Ended
from batten.contract.notes import Note
from batten.contract.outcomes import Outcome
from batten.journal.contract import Journal, Stored
from batten.journal.recorder import whole_envelope
from batten.protocols.heddle.frames import SendFrames
from batten.protocols.heddle.messages import Event, Result
from batten.protocols.json_line import encode
from batten.serve.following import Following
from batten.serve.heddle.transcript import TranscriptFile
from batten.serve.output import Output
from batten.serve.renderer import Describe


class HeddleRenderer(Following):
    """Shows one send at a time."""

    def __init__(
        self,
        output: Output,
        over: Callable[[SendFrames], dict[str, Any]],
        transcript: TranscriptFile | None = None,
    ) -> None:
        super().__init__()
        self._output = output
        self._over = over
        """Told that a send is over, right before its result is written; what that repeats."""
        self._transcript = transcript
        self._frames: SendFrames | None = None

    def attend(self, frames: SendFrames) -> None:
        """This send is worked on from now on."""
        self._frames, self._shown = frames, -1
        if self._transcript is not None:
            self._transcript.begin()

    def begin(self, session_id: str, describe: Describe) -> None:
        return

    def prompted(self, text: str) -> None:
        return

    def beside(self, stored: Stored, journal: Journal) -> None:
        return

    def note(self, note: Note) -> None:
        return

    def ended(self, ended: Ended, journal: Journal) -> None:
        if self._closed or self._frames is None:
            return
        if ended.durable:
            self._show_rest(journal, ended.run_id)
        self._end(ended.outcome, ended.message)

    def fail(self, outcome: Outcome, message: str) -> None:
        if not self._closed:
            self._end(outcome, message)

    def finish(self) -> None:
        return

    def last_words(self, outcome: Outcome, message: str, durable: bool) -> None:
        self._closed = True
        self._end(outcome, message)

    def _end(self, outcome: Outcome, message: str) -> None:
        """The result of the send that is worked on; if no fact told how it ended, this does."""
        frames, self._frames = self._frames, None
        if frames is None:
            return
        if not frames.ended:
            self._show(frames.fail(outcome, self.redact(message)))
        echoed = self._over(frames)
        self._show([frames.result(**echoed)])

    def _feed(self, stored: Stored, journal: Journal) -> None:
        if self._frames is None:
            return
        envelope = whole_envelope(stored, journal)
        if self._transcript is not None:
            self._transcript.add(envelope)
        self._show(self._frames.feed(envelope.data))

    def _show(self, frames: list[Event] | list[Result]) -> None:
        for frame in frames:
            self._output.write(encode(frame))
