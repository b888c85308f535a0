"""A session as Claude Code's frames: an init and a result for each prompt."""

import asyncio

from batten.agent.execution import Ended
from batten.contract.notes import Note
from batten.contract.outcomes import Outcome
from batten.journal.contract import Journal, Stored
from batten.journal.recorder import whole_envelope
from batten.protocols.claude.frames import ClaudeFrames, FrameOptions
from batten.protocols.claude.line import Frame
from batten.serve.claude.children import ClaudeChildren
from batten.serve.claude.control_channel import ControlChannel
from batten.serve.following import Following
from batten.serve.renderer import Describe


class ClaudeRenderer(Following):
    """Shows each run of a session as it happens."""

    def __init__(self, channel: ControlChannel, wanted: FrameOptions) -> None:
        super().__init__()
        self._channel = channel
        self._wanted = wanted
        self._session_id = ""
        self._frames = ClaudeFrames("", wanted)
        self._describe: Describe | None = None
        self._children: ClaudeChildren | None = None
        self._owed = False
        """A result has not been shown of the prompt that is worked on."""
        self._failed = False
        """The last frame is a result that is an error. A frame after it would have the SDK believe
        that we went on, and our exit code then is a crash to it."""

    @property
    def context_tokens(self) -> int:
        """How much the model was shown and said at its last answer."""
        return self._frames.context_tokens

    def follow_children(self, group: asyncio.TaskGroup) -> ClaudeChildren:
        """Show child runs too, from tasks of this group."""
        self._children = ClaudeChildren(group, self._show, self._channel.room)
        return self._children

    def begin(self, session_id: str, describe: Describe) -> None:
        self._session_id = session_id
        self._frames = ClaudeFrames(session_id, self._wanted)
        self._describe = describe

    def prompted(self, text: str) -> None:
        assert self._describe is not None
        self._shown, self._owed, self._failed = -1, True, False
        self._show([self._frames.init(self._describe(self._session_id))])

    def beside(self, stored: Stored, journal: Journal) -> None:
        if self._wanted.hook_events and not (self._closed or self._failed):
            self._show(self._frames.feed(whole_envelope(stored, journal)))

    def note(self, note: Note) -> None:
        if not self._closed:
            self._show(self._frames.note(note, room=self._channel.has_room))

    def ended(self, ended: Ended, journal: Journal) -> None:
        if self._closed:
            return
        if ended.durable:
            self._show_rest(journal, ended.run_id)
        if self._frames.outcome is None:
            self._frames.fail(ended.outcome, self.redact(ended.message))
        self._end()

    def fail(self, outcome: Outcome, message: str) -> None:
        """Told as a result of its own: the SDK reads from it why we leave."""
        told_already = outcome == "cancelled" == self._frames.outcome
        if not self._closed and not told_already:
            self._frames.fail(outcome, self.redact(message))
            self._owed = True

    def finish(self) -> None:
        if self._owed and not self._closed:
            self._end()

    def catch_up(self, journal: Journal, run_id: str) -> None:
        self._children = None  # tasks are the loop's
        super().catch_up(journal, run_id)

    def last_words(self, outcome: Outcome, message: str, durable: bool) -> None:
        if not self._owed:
            self.fail(outcome, message)
        if not self._owed:
            return
        self._closed = True
        if self._frames.outcome is None:
            self._frames.fail(outcome, self.redact(message))
        self._end()

    def _end(self) -> None:
        self._owed, self._failed = False, self._frames.outcome != "completed"
        self._show([self._frames.result()])

    def _feed(self, stored: Stored, journal: Journal) -> None:
        envelope = whole_envelope(stored, journal)
        if self._children is not None:
            self._children.see(self._frames, envelope, journal)
        self._show(self._frames.feed(envelope))

    def _show(self, frames: list[Frame]) -> None:
        for frame in frames:
            self._channel.send(frame)
