"""A program that embeds Batten and brings a tool with a bug, which shows once there is a file."""

import os
import sys
from typing import Any

from batten.cli import run
from batten.contract.facts.tool import ToolKind
from batten.models.contract import ToolSpec
from batten.tools.contract import Effect, ToolContext, ToolOutput


class Broken:
    kind: ToolKind = "custom"
    effect: Effect = "none"

    @property
    def spec(self) -> ToolSpec:
        if os.path.exists("broken"):
            raise ValueError("a bug")
        return ToolSpec(name="broken", description="Breaks.", parameters={"type": "object"})

    def subject(self, arguments: dict[str, Any]) -> str:
        return ""

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        return ToolOutput(text="well")


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], tools=[Broken()]))
