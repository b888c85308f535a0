"""A program that embeds Batten and brings a tool that will not end; run by a campaign."""

import asyncio
import re
import sys
import time
from typing import Any

from batten.cli import run
from batten.contract.facts.tool import ToolKind
from batten.models.contract import ToolSpec
from batten.tools.contract import Effect, ToolContext, ToolOutput


class Stuck:
    """Blocks the loop, keeps the interpreter to itself, or is slow to hear that it is cancelled."""

    kind: ToolKind = "custom"
    effect: Effect = "none"
    spec = ToolSpec(
        name="stuck",
        description="Does not end.",
        parameters={
            "type": "object",
            "properties": {"how": {"enum": ["asleep", "spinning", "in_c", "reluctant"]}},
            "required": ["how"],
        },
    )

    def subject(self, arguments: dict[str, Any]) -> str:
        return str(arguments["how"])

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        match arguments["how"]:
            case "asleep":
                time.sleep(600)  # noqa: ASYNC251
            case "spinning":
                while True:
                    pass
            case "reluctant":
                try:
                    await asyncio.sleep(600)
                finally:
                    await asyncio.sleep(600)
            case _:
                re.match(r"(a+)+b", "a" * 60)
        return ToolOutput(text="unreachable")


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], tools=[Stuck()]))
