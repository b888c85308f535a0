"""Client tools: offered to the model beside ours, executed by the client."""

import re
from typing import Any

from batten.agent.deps import Question
from batten.agent.run_context import RunContext
from batten.contract.conversation import Image
from batten.contract.errors import CallerError
from batten.contract.facts.tool import ToolKind
from batten.models.contract import ToolSpec
from batten.protocols.maestro.asking import text_of
from batten.protocols.maestro.incoming import ClientTool, ImageContent, TextContent
from batten.serve.maestro.requests import MaestroRequests
from batten.tools.aliases import canonical
from batten.tools.contract import Effect, ToolContext, ToolOutput
from batten.tools.schema import validator_for

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_MOST_TOOLS = 128


class LentTool:
    """A client tool. Its effect is unknown here, so it counts as `execute`."""

    kind: ToolKind = "custom"
    effect: Effect = "execute"

    def __init__(self, lent: ClientTool, requests: MaestroRequests) -> None:
        self._requests = requests
        schema = {"type": "object", **lent.input_schema}
        self.spec = ToolSpec(lent.name, lent.description, schema)

    def subject(self, arguments: dict[str, Any]) -> str:
        return ""

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        assert isinstance(context, RunContext)
        answer = await self._requests.ask(
            context.recorder,
            Question(
                request_class="client_tool",
                tool_call_id=context.call_id,
                tool_name=self.spec.name,
                summary=self.spec.name,
                reason="the client runs this tool",
                detail=arguments,
            ),
        )
        content = self._requests.taken(context.call_id, answer)
        texts = tuple(block for block in content if isinstance(block, TextContent))
        images = [block for block in content if isinstance(block, ImageContent)]
        text = text_of(texts) or answer.text
        return ToolOutput(
            text=context.redact(text),
            ending="completed" if answer.granted else "failed",
            error_kind="" if answer.granted else "client_tool_failed",
            images=tuple(Image(one.mime_type, one.data) for one in images),
        )


def lent_tools(
    tools: tuple[ClientTool, ...], requests: MaestroRequests, taken: list[str]
) -> list[LentTool]:
    """Tools for a client's declarations. `taken` are the names of built-in tools; other names that
    stand for those are taken too, as rules about them are.
    """
    if len(tools) > _MOST_TOOLS:
        raise CallerError(f"client_tools: {len(tools)} are lent; at most {_MOST_TOOLS} are used")
    names = [tool.name for tool in tools]
    for name in names:
        if not _NAME.fullmatch(name):
            raise CallerError(f"client_tools: {name!r} is no name of a tool")
        if canonical(name) in taken or names.count(name) > 1:
            raise CallerError(f"client_tools: the name {name} is taken")
    lent = [LentTool(tool, requests) for tool in tools]
    for tool in lent:
        try:
            validator_for(tool.spec.parameters)
        except ValueError as error:
            reason = str(error).partition("\n")[0]
            message = f"client_tools: the input_schema of {tool.spec.name} cannot be used: {reason}"
            raise CallerError(message) from error
    return lent
