"""The `ask_user` tool: asks the declared resolvers a question."""

from typing import Any

from batten.agent.deps import Question, RunDeps
from batten.agent.run_context import RunContext
from batten.contract.facts.tool import ToolKind
from batten.models.contract import ToolSpec
from batten.tools.contract import Effect, ToolContext, ToolOutput


class AskUser:
    kind: ToolKind = "ask_user"
    effect: Effect = "none"
    spec = ToolSpec(
        name="ask_user",
        description="Ask the person this work is for. Often nobody is there to answer.",
        parameters={
            "type": "object",
            "properties": {
                "question": {"type": "string"},
                "options": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["question"],
        },
    )

    def __init__(self, deps: RunDeps) -> None:
        self._deps = deps

    def subject(self, arguments: dict[str, Any]) -> str:
        return str(arguments["question"])

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        assert isinstance(context, RunContext)
        if context.resolvers:
            question = context.redact_authored(arguments["question"])[:500]
            context.hooks.somebody_is_asked(context.turn_index, question, "user_input")
        answer = await self._deps.requests.ask(
            context.recorder,
            Question(
                request_class="user_input",
                tool_call_id=context.call_id,
                tool_name=self.spec.name,
                summary=arguments["question"],
                reason="the agent asks for input",
                detail=arguments,
            ),
        )
        if answer.granted:
            return ToolOutput(text=answer.text)
        return ToolOutput(
            text=answer.text or "User interaction not available in headless mode",
            ending="failed",
            error_kind="nobody_answers",
        )
