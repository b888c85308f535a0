"""Small tools for tests: each ends in one way a tool can end."""

import asyncio
from typing import Any

from batten.contract.conversation import Image
from batten.contract.errors import ProviderError
from batten.contract.facts.tool import ToolKind
from batten.models.contract import ToolSpec
from batten.tools.contract import Effect, ToolContext, ToolOutput

PIXEL = b"\x89PNG\r\n\x1a\n a picture"


class Acting:
    """Does what its `act` argument says. Its subject is that word too."""

    kind: ToolKind = "custom"
    spec = ToolSpec(
        name="acting",
        description="Ends as it is told.",
        parameters={
            "type": "object",
            "properties": {
                "act": {"type": "string"},
                "count": {"type": "integer"},
                "place": {"type": "object"},
            },
            "required": ["act"],
        },
    )

    def __init__(self, effect: Effect = "read") -> None:
        self.effect: Effect = effect
        self.acts: list[str] = []
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()

    def subject(self, arguments: dict[str, Any]) -> str:
        return str(arguments["act"])

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        act: str = arguments["act"]
        self.acts.append(act)
        match act:
            case "raise":
                raise RuntimeError("it broke")
            case "refuse":
                raise ProviderError("its backend is away", code="backend_away")
            case "time out":
                return ToolOutput(text="too slow", ending="timed_out")
            case "fail":
                return ToolOutput(text="no luck", ending="failed", error_kind="luck")
            case "picture":
                return ToolOutput(text="look", images=(Image("image/png", PIXEL),))
            case "talk":
                return ToolOutput(text="\n\n1 %\r99 %\u2028done\nand more")
            case "long":
                return ToolOutput(text="0123456789" * 12_000)
            case "wait":
                self.begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    self.ended.set()
            case _:
                pass
        return ToolOutput(text=f"did {act}")
