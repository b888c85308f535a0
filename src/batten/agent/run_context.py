"""The context of a tool call in a run: adds what only our own tools and hooks need."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from batten.agent.live_settings import LiveSettings
from batten.contract import facts
from batten.contract.cutting import cut
from batten.contract.facts import Fact
from batten.contract.facts.artifact import ArtifactKind, ArtifactStatus
from batten.contract.facts.tool import Todo
from batten.journal.contract import Body
from batten.journal.recorder import Recorder
from batten.tools.context import CallContext
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


class RunContext(CallContext):
    """Collects the changes of its call that hooks receive."""

    def __init__(
        self,
        recorder: Recorder,
        call_id: str,
        tool_name: str,
        turn_index: int,
        live_settings: LiveSettings,
        hooks: "HookPoints",
        resolvers: tuple[str, ...] = (),
        requests: "Requests | None" = None,
        *,
        permissions: "CallPermissions",
        unfinished: list[Callable[[], Awaitable[None]]],
    ) -> None:
        super().__init__(recorder, call_id, tool_name, turn_index)
        self._permissions = permissions
        self._requests = requests
        self.live_settings = live_settings
        self.hooks = hooks
        self.resolvers = resolvers
        """Roles that answer the call's questions."""
        self.changed: list[Changed] = []
        self.todos: list[Todo] | None = None
        """The to-do list that the call wrote."""
        self._paths: dict[str, str] = {}
        self._unfinished = unfinished

    def afterwards(self, finish: Callable[[], Awaitable[None]]) -> None:
        self._unfinished.append(finish)

    def may_read(self, path: str) -> bool:
        return self._permissions.may_read(path)

    def check_redirect(self, url: str) -> None:
        self._permissions.check_redirect(url)

    def record(self, *facts: Fact) -> Awaitable[object]:
        receipt = super().record(*facts)
        for fact in facts:
            self._notice(fact)
        return receipt

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
        artifact_id = await super().artifact(
            kind,
            data,
            mime_type=mime_type,
            summary=summary,
            status=status,
            metadata=metadata,
            refused_bytes=refused_bytes,
        )
        if kind == "patch" and metadata is not None:
            self._paths[artifact_id] = str(metadata.get("target_path", ""))
        return artifact_id

    async def elicit(self, message: str, detail: dict[str, Any]) -> Elicited:
        """Ask the declared resolvers a tool server's question."""
        from batten.agent.deps import Question

        if self._requests is None:
            return Elicited(False, "nobody is there to answer")
        answer = await self._requests.ask(
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
