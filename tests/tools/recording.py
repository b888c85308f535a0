"""A tool context over a list: what a call records, in order, with artifacts kept in memory."""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Unpack

from batten.contract.facts import ArtifactCreated, Fact
from batten.contract.facts.artifact import ArtifactKind
from batten.journal.contract import Body, BodyWriter
from batten.journal.keeping import ArtifactDetails
from batten.journal.recorder import redact_fact
from batten.redact.redactor import Redactor
from batten.tools.contract import ToolOutput
from batten.workspace import patches


class ListBody:
    """A body gathered in memory."""

    refused_bytes = 0

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: bytes) -> None:
        self._data += data

    def close(self) -> Body:
        return _body(bytes(self._data))

    def discard(self) -> None:
        self._data.clear()


class RecordingContext:
    """Facts are redacted as they arrive and count as durable once awaited."""

    call_id = "call_1"
    tool_name = ""
    turn_index = 1
    auto_apply = True

    def __init__(self, redactor: Redactor | None = None) -> None:
        self._redactor = redactor or Redactor()
        self.facts: list[Fact] = []
        self.bodies: dict[str, bytes] = {}
        self.sealed: dict[str, bytes] = {}
        self.partial: ToolOutput | None = None
        self.unfinished: list[Callable[[], Awaitable[None]]] = []
        self.durable = 0
        """How many of the facts somebody has waited for."""

    @property
    def types(self) -> list[str]:
        return [fact.type for fact in self.facts]

    async def proposals(self) -> dict[str, bytes | None]:
        bodies = map(patches.decode, self.sealed.values())
        return {body.path: body.after for body in bodies}

    def record(self, *facts: Fact) -> Awaitable[object]:
        self.facts += [redact_fact(fact, self._redactor) for fact in facts]
        return self._settle(len(self.facts))

    async def artifact(
        self,
        kind: ArtifactKind,
        data: bytes | Body,
        *,
        refused_bytes: int = 0,
        **details: Unpack[ArtifactDetails],
    ) -> str:
        body = _body(data) if isinstance(data, bytes) else data
        artifact_id = f"art_{len(self.bodies) + 1}"
        self.bodies[artifact_id] = body.data or b""
        await self.record(
            ArtifactCreated(
                artifact_id=artifact_id,
                kind=kind,
                size_bytes=body.size,
                summary=details["summary"],
                mime_type=details["mime_type"],
                status=details.get("status", "created"),
                metadata=details.get("metadata") or {},
            )
        )
        return artifact_id

    async def body_writer(self) -> BodyWriter:
        return ListBody()

    async def seal(self, data: bytes, *, summary: str) -> str:
        sealed_id = f"sealed_{len(self.sealed) + 1}"
        self.sealed[sealed_id] = data
        return sealed_id

    def interrupted(self, partial: ToolOutput) -> None:
        self.partial = partial

    def afterwards(self, finish: Callable[[], Awaitable[None]]) -> None:
        self.unfinished.append(finish)

    async def settle(self) -> None:
        while self.unfinished:
            await self.unfinished.pop(0)()

    def redact(self, text: str) -> str:
        return self._redactor.text(text)

    def redact_authored(self, text: str) -> str:
        return self._redactor.authored.text(text)

    def may_read(self, path: str) -> bool:
        return True

    def check_redirect(self, url: str) -> None:
        return None

    def _settle(self, count: int) -> Awaitable[object]:
        return _Settled(self, count)


class _Settled:
    """Awaiting it is the moment the facts are durable. Not awaiting it is allowed."""

    def __init__(self, context: RecordingContext, count: int) -> None:
        self._context = context
        self._count = count

    def __await__(self) -> Any:
        yield from ()
        self._context.durable = max(self._context.durable, self._count)


def _body(data: bytes) -> Body:
    return Body(hashlib.sha256(data).hexdigest(), len(data), data)
