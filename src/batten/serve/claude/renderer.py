"""Renders a session as Claude Code's frames, with an init and a result for each prompt."""

from collections.abc import Callable

from batten.agent.execution import Ended
from batten.contract.envelope import Envelope
from batten.contract.notes import Note
from batten.contract.outcomes import Outcome
from batten.journal.contract import Stored
from batten.protocols.claude.frames import ClaudeFrames
from batten.protocols.claude.line import Frame
from batten.protocols.claude.usage import Totals
from batten.protocols.stream_json import FrameOptions
from batten.serve.claude.control_channel import ControlChannel
from batten.serve.renderer import Describe, Renderer


class ClaudeRenderer(Renderer):
    """Shows each run of a session as it happens."""

    follows = streams = completes = unseals = True

    def __init__(
        self,
        channel: ControlChannel,
        wanted: FrameOptions,
        window: Callable[[str], int | None] = lambda model: None,
    ) -> None:
        """`window`: the tokens that a model takes."""
        self._channel = channel
        self._wanted = wanted
        self._window = window
        self._session_id = ""
        self._frames = ClaudeFrames("", wanted)
        self._describe: Describe | None = None
        self.shows_child_text = False
        """Whether the texts of child runs are shown too, not only their tool calls."""
        self._owed = False
        """The current prompt has no result yet."""
        self._failed = False
        """The last frame is an error result. After a further frame the SDK would report our exit
        code as a crash."""

    @property
    def context_tokens(self) -> int:
        """Tokens of input and output at the model's last answer."""
        return self._frames.context_tokens

    def begin(self, session_id: str, describe: Describe) -> None:
        self._session_id = session_id
        self._frames = ClaudeFrames(session_id, self._wanted, totals=Totals(self._window))
        self._describe = describe

    def prompted(self, text: str) -> None:
        assert self._describe is not None
        self._owed, self._failed = True, False
        self.send([self._frames.init(self._describe(self._session_id))])

    def show(self, stored: Stored, envelope: Envelope) -> None:
        self.send(self._frames.feed(envelope))

    def child(self, tool_call_id: str) -> Renderer:
        return _ChildRenderer(self, self._frames.child(tool_call_id))

    def beside(self, stored: Stored, envelope: Envelope) -> None:
        if self._wanted.hook_events and not (self.closed or self._failed):
            self.show(stored, envelope)

    def note(self, note: Note) -> None:
        if not self.closed:
            self.send(self._frames.note(note, room=self._channel.has_room))

    def ended(self, ended: Ended) -> None:
        if self.closed:
            return
        if self._frames.outcome is None:
            self._frames.fail(ended.outcome, self.redact(ended.message))
        self._end()

    def fail(self, outcome: Outcome, message: str) -> None:
        """Shown as a separate result, from which the SDK reads why the process ends."""
        is_shown = outcome == "cancelled" == self._frames.outcome
        if not self.closed and not is_shown:
            self._frames.fail(outcome, self.redact(message))
            self._owed = True

    def finish(self) -> None:
        if self._owed and not self.closed:
            self._end()

    def last_words(self, outcome: Outcome, message: str, durable: bool) -> None:
        if not self._owed:
            self.fail(outcome, message)
        if not self._owed:
            return
        self.closed = True
        if self._frames.outcome is None:
            self._frames.fail(outcome, self.redact(message))
        self._end()

    def _end(self) -> None:
        self._owed, self._failed = False, self._frames.outcome != "completed"
        self.send([self._frames.result()])

    def send(self, frames: list[Frame]) -> None:
        for frame in frames:
            self._channel.send(frame)


class _ChildRenderer(Renderer):
    """Shows a child run under the tool call that started it."""

    unseals = True

    def __init__(self, top: ClaudeRenderer, frames: ClaudeFrames) -> None:
        self._top = top
        self._frames = frames

    def show(self, stored: Stored, envelope: Envelope) -> None:
        frames = self._frames.feed(envelope)
        if not self._top.shows_child_text:
            frames = [one for one in map(_without_text, frames) if one]
        self._top.send(frames)

    def child(self, tool_call_id: str) -> Renderer:
        return _ChildRenderer(self._top, self._frames.child(tool_call_id))


def _without_text(frame: Frame) -> Frame | None:
    """A frame with only its tool calls and results; None if it has none."""
    if frame["type"] == "user":
        return frame
    if frame["type"] != "assistant":
        return None
    message = frame["message"]
    calls = [block for block in message["content"] if block["type"] == "tool_use"]
    return {**frame, "message": {**message, "content": calls}} if calls else None
