"""The context of a tool call in a run, with what only our own tools and hooks need."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Unpack

from msgspec import Struct

from batten.agent.halt import Halt
from batten.agent.live_settings import LiveSettings
from batten.contract import facts
from batten.contract.cutting import cut
from batten.contract.facts import Fact
from batten.contract.facts.artifact import ArtifactKind
from batten.contract.facts.tool import Todo
from batten.journal.contract import Body, BodyWriter
from batten.journal.keeping import ArtifactDetails
from batten.journal.recorder import Recorder
from batten.tools.contract import ToolOutput
from batten.tools.elicitation import Elicited

if TYPE_CHECKING:
    from batten.agent.deps import Requests
    from batten.agent.gate import CallPermissions
    from batten.agent.hooks.points import HookPoints


_LONGEST_SUMMARY = 16_000


class Changed(Struct, frozen=True):
    """A file that a call changed."""

    path: str
    fact: Fact


class RunContext(Struct, kw_only=True, eq=False):
    """The `ToolContext` of a call in a run. Collects the changes of its call that hooks receive."""

    recorder: Recorder
    call_id: str
    tool_name: str
    turn_index: int
    live_settings: LiveSettings
    hooks: "HookPoints"
    resolvers: tuple[str, ...]
    """Roles that answer the call's questions."""
    requests: "Requests | None"
    permissions: "CallPermissions"
    auto_apply: bool
    unfinished: list[Callable[[], Awaitable[None]]]
    """What the run's calls left to be known later."""
    partial: ToolOutput | None = None
    """What the call had done when it was cancelled."""
    halt: Halt | None = None
    """Ends the run once the call has ended."""
    changed: list[Changed] = []
    todos: list[Todo] | None = None
    """The to-do list that the call wrote."""
    _paths: dict[str, str] = {}

    def interrupted(self, partial: ToolOutput) -> None:
        self.partial = partial

    def afterwards(self, finish: Callable[[], Awaitable[None]]) -> None:
        self.unfinished.append(finish)

    async def proposals(self) -> dict[str, bytes | None]:
        from batten.workspace import patches

        journal, run_id = self.recorder.journal, self.recorder.run_id
        found: dict[str, bytes | None] = {}
        for row in await journal.artifacts(run_id, kind="patch"):
            sealed = row.metadata.get("sealed_artifact_id")
            if row.status == "proposed" and isinstance(sealed, str):
                body = patches.decode(await self.recorder.unseal(sealed))
                found[body.path] = body.after
        return found

    def redact(self, text: str) -> str:
        return self.recorder.redactor.text(text)

    def redact_authored(self, text: str) -> str:
        return self.recorder.redactor.authored.text(text)

    def may_read(self, path: str) -> bool:
        return self.permissions.may_read(path)

    def check_redirect(self, url: str) -> None:
        self.permissions.check_redirect(url)

    def record(self, *facts: Fact) -> Awaitable[object]:
        receipt = self.recorder.record(*facts)
        for fact in facts:
            self._notice(fact)
        return receipt

    async def artifact(
        self,
        kind: ArtifactKind,
        data: bytes | Body,
        *,
        refused_bytes: int = 0,
        **details: Unpack[ArtifactDetails],
    ) -> str:
        artifact_id = self.recorder.artifact(
            kind, data, tool_call_id=self.call_id, refused_bytes=refused_bytes, **details
        )
        if kind == "patch":
            metadata = details.get("metadata") or {}
            self._paths[artifact_id] = str(metadata.get("target_path", ""))
        return artifact_id

    async def body_writer(self) -> BodyWriter:
        return await self.recorder.body_writer()

    async def seal(self, data: bytes, *, summary: str) -> str:
        return self.recorder.seal(data, summary=summary, tool_call_id=self.call_id)

    async def elicit(self, message: str, detail: dict[str, Any]) -> Elicited:
        """Ask the declared resolvers a tool server's question."""
        from batten.agent.deps import Question

        if self.requests is None:
            return Elicited(False, "nobody is there to answer")
        answer = await self.requests.ask(
            self.recorder,
            Question(
                request_class="mcp_elicitation",
                tool_call_id=self.call_id,
                tool_name="mcp_elicitation",
                summary=cut(self.redact(message), _LONGEST_SUMMARY),
                reason="a tool server asks for input",
                detail=detail,
            ),
        )
        return Elicited(answer.granted, answer.text)

    def _notice(self, fact: Fact) -> None:
        match fact:
            case facts.ToolEditApplied() | facts.ToolFileWriteApplied():
                self._change(fact.patch_artifact_id, fact)
            case facts.ToolMultiEditApplied():
                for artifact_id in fact.patch_artifact_ids:
                    self._change(artifact_id, fact)
            case facts.ToolTodoWriteUpdated():
                self.todos = list(fact.todos)
            case _:
                pass

    def _change(self, artifact_id: str, fact: Fact) -> None:
        self.changed.append(Changed(self._paths.get(artifact_id, ""), fact))
