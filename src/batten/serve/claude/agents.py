"""Agents defined by the client: child runs with their own prompt, tools and model."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from batten.agent.child import AgentTool
from batten.agent.deps import RunDeps
from batten.agent.settings import RunSettings
from batten.contract.errors import CallerError
from batten.models.contract import ToolSpec
from batten.models.registry import split_name
from batten.models.short_names import model_named
from batten.protocols.claude.names import our_name


class Definition(Struct, frozen=True):
    """A client's definition of an agent. Other fields are ignored."""

    description: str
    prompt: str
    tools: tuple[str, ...] | None = None
    """Claude Code's names; None offers all tools."""
    model: str | None = None


def definitions(given: Mapping[str, Any]) -> dict[str, Definition]:
    """Validate the client's definitions; raises `CallerError`."""
    try:
        return msgspec.convert(given, dict[str, Definition])
    except msgspec.ValidationError as error:
        raise CallerError(f"an agent is {{description, prompt, …}}: {error}") from error


class DefinedAgents(AgentTool):
    """The `agent` tool, extended by the agents that the client defined."""

    def __init__(
        self,
        deps: RunDeps,
        settings: RunSettings,
        depth: int,
        defined: Mapping[str, Definition],
        environ: Mapping[str, str],
    ) -> None:
        super().__init__(deps, settings, depth)
        self._defined = defined
        self._environ = environ
        self.spec = _spec(defined)

    def settings_for(self, arguments: dict[str, Any], models: tuple[str, ...]) -> RunSettings:
        settings = super().settings_for(arguments, models)
        chosen = self._defined.get(arguments.get("subagent_type", ""))
        if chosen is None:
            return settings
        model = chosen.model or "inherit"
        if model != "inherit" and "model" not in arguments:
            full = "/".join(split_name(model_named(model, self._environ)))
            settings = msgspec.structs.replace(settings, models=(full,))
        tools = settings.tools
        if chosen.tools is not None:
            tools = tuple(name for one in chosen.tools if (name := our_name(one)) is not None)
        return msgspec.structs.replace(settings, system=chosen.prompt, tools=tools)


def _spec(defined: Mapping[str, Definition]) -> ToolSpec:
    plain = AgentTool.spec
    listed = "; ".join(f"{name}: {one.description}" for name, one in defined.items())
    kind = {"type": "string", "enum": list(defined), "description": f"A kind of agent. {listed}"}
    properties = {**plain.parameters["properties"], "subagent_type": kind}
    return ToolSpec(plain.name, plain.description, {**plain.parameters, "properties": properties})
