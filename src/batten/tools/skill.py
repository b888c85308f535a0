"""The `skill` tool: instructions for one kind of work, read when the model needs them."""

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from batten.contract.errors import CallerError
from batten.contract.facts.tool import ToolKind
from batten.models.contract import ToolSpec
from batten.settings.contract import Skill
from batten.tools.contract import Effect, ToolContext, ToolOutput, failure, object_schema


class SkillTool:
    """Offers the skills found in the settings; its description lists them."""

    kind: ToolKind = "custom"
    effect: Effect = "read"

    def __init__(self, skills: Sequence[Skill]) -> None:
        self.skills = {skill.name: skill for skill in skills}
        listed = "\n".join(f"- {skill.name}: {skill.description}" for skill in skills)
        self.spec = ToolSpec(
            name="skill",
            description=(
                "Read the instructions of a skill before doing the work it is for. Skills:\n"
                f"{listed}"
            ),
            parameters=object_schema(
                ["name"], name={"type": "string", "description": "Which skill."}
            ),
        )

    def subject(self, arguments: dict[str, Any]) -> str:
        return str(arguments["name"])

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        name: str = arguments["name"]
        skill = self.skills.get(name)
        if skill is None:
            known = ", ".join(self.skills)
            return failure(f"no skill is named {name!r}; there are: {known}", "unknown_skill")
        from batten.settings.skills import skill_body

        try:
            body = context.redact(await asyncio.to_thread(skill_body, skill))
        except CallerError as error:
            return failure(str(error), "skill_unreadable")
        folder = os.path.dirname(skill.path)
        return ToolOutput(
            text=f"Skill {name}; its files are in {folder}\n\n{body}", summary=f"skill {name}"
        )
