"""Skills as slash commands of the client: the user names one, the model uses it."""

from collections.abc import Mapping

import msgspec

from batten.contract.commands import Prompt
from batten.protocols.acp.updates import AvailableCommand, AvailableCommands, CommandInput


def commands_of(skills: Mapping[str, str]) -> AvailableCommands:
    """Skills by name, with their descriptions."""
    return AvailableCommands(
        available_commands=[
            AvailableCommand(name=name, description=about, input=CommandInput(hint="what to do"))
            for name, about in skills.items()
        ]
    )


def with_skill(prompt: Prompt, skills: Mapping[str, str]) -> Prompt:
    """A prompt that begins with a skill's name becomes a request for it; others pass unchanged."""
    word, _, rest = prompt.text.partition(" ")
    name = word.removeprefix("/").rstrip("\n")
    if not word.startswith("/") or name not in skills:
        return prompt
    return msgspec.structs.replace(prompt, text=f"Use the skill {name!r}. {rest}".rstrip())
