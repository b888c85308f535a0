"""The context of one running call: the run's recorder, bound to the call."""

from collections.abc import Awaitable
from typing import Any

from batten.contract.facts import Fact
from batten.contract.facts.artifact import ArtifactKind, ArtifactStatus
from batten.journal.contract import Body, BodyWriter
from batten.journal.recorder import Recorder
from batten.tools.contract import ToolOutput


class CallContext:
    """The `ToolContext` of a call in a run."""

    def __init__(self, recorder: Recorder, call_id: str, tool_name: str, turn_index: int) -> None:
        self._recorder = recorder
        self.call_id = call_id
        self.tool_name = tool_name
        self.turn_index = turn_index
        self.partial: ToolOutput | None = None
        """What the call had done when it was cancelled."""

    @property
    def recorder(self) -> Recorder:
        return self._recorder

    def record(self, *facts: Fact) -> Awaitable[object]:
        return self._recorder.record(*facts)

    async def artifact(
        self,
        kind: ArtifactKind,
        data: bytes | Body,
        *,
        mime_type: str,
        summary: str,
        status: ArtifactStatus = "created",
        metadata: dict[str, Any] | None = None,
        refused_bytes: int = 0,
    ) -> str:
        return self._recorder.artifact(
            kind,
            data,
            mime_type=mime_type,
            summary=summary,
            status=status,
            tool_call_id=self.call_id,
            metadata=metadata,
            refused_bytes=refused_bytes,
        )

    async def body_writer(self) -> BodyWriter:
        return await self._recorder.body_writer()

    async def seal(self, data: bytes, *, summary: str) -> str:
        return self._recorder.seal(data, summary=summary, tool_call_id=self.call_id)

    def interrupted(self, partial: ToolOutput) -> None:
        self.partial = partial

    def redact(self, text: str) -> str:
        return self._recorder.redactor.text(text)

    def redact_authored(self, text: str) -> str:
        return self._recorder.redactor.authored.text(text)
