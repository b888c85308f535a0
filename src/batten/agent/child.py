"""The `agent` tool: a child run with its own journal, its parent's budget and rules."""

import asyncio
from typing import Any

import msgspec

from batten.agent.conversation import Conversation
from batten.agent.creation import Origin, Parent
from batten.agent.deps import RunDeps
from batten.agent.execution import Ended, Execution
from batten.agent.run_context import RunContext
from batten.agent.settings import RunSettings
from batten.contract.facts import ToolStarted
from batten.contract.facts.tool import ToolKind
from batten.models.contract import ToolSpec
from batten.tools.contract import Effect, ToolContext, ToolOutput

DEEPEST = 3


class AgentTool:
    """Starts another agent on a part of the work and returns its answer."""

    kind: ToolKind = "agent"
    effect: Effect = "none"
    spec = ToolSpec(
        name="agent",
        description=(
            "Give a part of the work to another agent with a fresh conversation and the same "
            "tools. Returns its final answer. Say everything it needs to know in the prompt."
        ),
        parameters={
            "type": "object",
            "properties": {
                "prompt": {"type": "string", "description": "What the other agent is to do."},
                "description": {"type": "string", "description": "A few words for people."},
                "model": {"type": "string", "description": "provider/model; yours if absent."},
            },
            "required": ["prompt"],
        },
    )

    def __init__(self, deps: RunDeps, settings: RunSettings, depth: int) -> None:
        self._deps = deps
        self._settings = settings
        self._depth = depth

    def subject(self, arguments: dict[str, Any]) -> str:
        return str(arguments.get("description") or arguments["prompt"])

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        if self._depth >= DEEPEST:
            return ToolOutput(
                text=f"Error: agents may start agents {DEEPEST} deep, not deeper",
                ending="failed",
                error_kind="too_deep",
            )
        chosen = arguments.get("model")
        if chosen is not None and (refusal := self._refusal(chosen, context)):
            return ToolOutput(text=f"Error: {refusal}", ending="failed", error_kind="config")
        assert isinstance(context, RunContext)
        name = context.redact_authored(self.subject(arguments))[:200]
        beginning = asyncio.ensure_future(self._begin(arguments, context))
        finishing: asyncio.Future[Ended] | None = None
        try:
            execution = await asyncio.shield(beginning)
            await context.record(
                ToolStarted(
                    tool_call_id=context.call_id,
                    tool_name=self.spec.name,
                    kind="agent",
                    child_run_id=execution.run_id,
                )
            )
            await context.hooks.child_started(context.turn_index, name, execution.run_id)
            finishing = asyncio.ensure_future(execution.finish())
            ended = await asyncio.shield(finishing)
        except asyncio.CancelledError:
            execution = await beginning
            await execution.cancel("parent", "the run that started this one was cancelled")
            await (finishing or execution.finish())
            raise
        await context.hooks.child_ended(
            context.turn_index, name, execution.run_id, well=ended.outcome == "completed"
        )
        context.halt = ended.halt
        return _output_of(ended)

    def _refusal(self, model: str, context: ToolContext) -> str:
        """Why a child may not use a model; empty if it may. Only the session's own may be named:
        another may cost more, and a scripted one names a file.
        """
        assert isinstance(context, RunContext)
        allowed = dict.fromkeys((*context.live_settings.models, *self._settings.models))
        if model in allowed:
            return ""
        return f"this session does not allow the model {model!r}; it has {', '.join(allowed)}"

    def settings_for(self, arguments: dict[str, Any], models: tuple[str, ...]) -> RunSettings:
        """The parent's settings and the chosen model, without the parent's output schema."""
        models = (arguments["model"],) if "model" in arguments else models
        return msgspec.structs.replace(self._settings, models=models, output_schema=None)

    async def _begin(self, arguments: dict[str, Any], context: RunContext) -> Execution:
        recorder = context.recorder
        row = await recorder.journal.run(recorder.run_id)
        return await Execution.begin(
            # A recorded scenario holds the parent's conversation only.
            msgspec.structs.replace(self._deps, observer=None),
            self.settings_for(arguments, context.live_settings.models),
            Origin(
                session_id=row.session_id if row else None,
                task_id=recorder.task_id,
                parent=Parent(recorder.run_id, context.call_id, self._depth + 1, recorder.call_ids),
                under=recorder.lease,
            ),
            Conversation(),
            arguments["prompt"],
            live_settings=context.live_settings,
        )


def _output_of(ended: Ended) -> ToolOutput:
    if ended.outcome == "completed":
        return ToolOutput(text=ended.answer, child_run_id=ended.run_id)
    return ToolOutput(
        text=f"Error: the agent ended with {ended.outcome}: {ended.message}",
        ending="failed",
        error_kind=ended.outcome,
        child_run_id=ended.run_id,
    )
