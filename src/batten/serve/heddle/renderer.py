"""Renders a session as Heddle's frames: the events of each send, and its result."""

from collections.abc import Callable
from typing import Any

from batten.agent.execution import Ended
from batten.contract.envelope import Envelope, decode
from batten.contract.facts import AssistantTextComplete
from batten.contract.outcomes import Outcome
from batten.journal.contract import Stored
from batten.protocols.heddle.frames import SendFrames
from batten.protocols.heddle.messages import Event, Result
from batten.protocols.json_line import encode
from batten.serve.heddle.transcript import TranscriptFile
from batten.serve.output import Output
from batten.serve.renderer import Renderer


class HeddleRenderer(Renderer):
    """Shows one send at a time."""

    follows = completes = unseals = True

    def __init__(
        self,
        output: Output,
        over: Callable[[SendFrames], dict[str, Any]],
        transcript: TranscriptFile | None = None,
    ) -> None:
        self._output = output
        self._over = over
        """Called when a send has ended, before its result; returns the result's echoed fields."""
        self._transcript = transcript
        self._frames: SendFrames | None = None

    def attend(self, frames: SendFrames) -> None:
        """Show this send from now on."""
        self._frames = frames
        if self._transcript is not None:
            self._transcript.begin()

    def show(self, stored: Stored, envelope: Envelope) -> None:
        if self._frames is None:
            return
        if self._transcript is not None:
            # A file holds what is stored, not the unsealed answer.
            is_unsealed = isinstance(envelope.data, AssistantTextComplete)
            self._transcript.add(decode(stored.body) if is_unsealed else envelope)
        self._write(self._frames.feed(envelope.data))

    def ended(self, ended: Ended) -> None:
        self.fail(ended.outcome, ended.message)

    def fail(self, outcome: Outcome, message: str) -> None:
        if not self.closed:
            self._end(outcome, message)

    def last_words(self, outcome: Outcome, message: str, durable: bool) -> None:
        self.closed = True
        self._end(outcome, message)

    def _end(self, outcome: Outcome, message: str) -> None:
        """Write the result of the current send; the arguments are used if its run has no ending."""
        frames, self._frames = self._frames, None
        if frames is None:
            return
        if not frames.ended:
            self._write(frames.fail(outcome, self.redact(message)))
        echoed = self._over(frames)
        self._write([frames.result(**echoed)])

    def _write(self, frames: list[Event] | list[Result]) -> None:
        for frame in frames:
            self._output.write(encode(frame))
