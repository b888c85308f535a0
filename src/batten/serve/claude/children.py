"""What child runs do, and if the client wants it what they say, as Claude Code's frames."""

import asyncio
from collections.abc import Awaitable, Callable

from batten.contract.envelope import Envelope
from batten.journal.contract import Stored
from batten.protocols.claude.frames import ClaudeFrames
from batten.protocols.claude.line import Frame
from batten.serve.children import Children


class ClaudeChildren(Children[ClaudeFrames]):
    """Shows child runs under the calls that started them."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        send: Callable[[list[Frame]], None],
        room: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(group, ClaudeFrames.child, self._send_fact, room)
        self._send = send
        self.shows_text = False
        """Whether what children say is shown too, not only what they do."""

    def _send_fact(self, codec: ClaudeFrames, stored: Stored, envelope: Envelope) -> None:
        frames = codec.feed(envelope)
        self._send(frames if self.shows_text else [one for one in map(_doings, frames) if one])


def _doings(frame: Frame) -> Frame | None:
    """A frame without what is only said; None if nothing is left of it."""
    if frame["type"] == "user":
        return frame
    if frame["type"] != "assistant":
        return None
    message = frame["message"]
    calls = [block for block in message["content"] if block["type"] == "tool_use"]
    return {**frame, "message": {**message, "content": calls}} if calls else None
