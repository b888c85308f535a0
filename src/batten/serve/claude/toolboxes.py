"""Selects the tools for a run of the SDK: our own, filtered, and those of the client's servers."""

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from batten.agent.deps import RunDeps
from batten.agent.settings import RunSettings
from batten.protocols.claude.argv import Invocation
from batten.serve.claude.agents import DefinedAgents, Definition
from batten.serve.claude.servers import LentServers
from batten.settings.contract import Skill
from batten.tools.contract import Tool
from batten.tools.registry import Toolbox
from batten.tools.skill import SkillTool


class ClientToolboxes:
    """Builds a toolbox for each run, since servers may connect or be disabled between runs."""

    def __init__(
        self,
        deps: RunDeps,
        invoked: Invocation,
        servers: LentServers,
        skills: Sequence[Skill],
        environ: Mapping[str, str],
    ) -> None:
        self._ours = deps.toolbox
        self._only = invoked.tools
        self._denied = {rule for rule in invoked.denied if "(" not in rule}
        self._servers = servers
        self._environ = environ
        self.agents: dict[str, Definition] = {}
        self.skills = tuple(skills)
        """Offered to the model."""

    def offer_skills(self, names: Collection[str]) -> None:
        """Offer only these skills. A name may have its plugin as a prefix: `plugin:skill`."""
        bare = {name.rpartition(":")[2] for name in names}
        self.skills = tuple(skill for skill in self.skills if skill.name in bare)

    def __call__(self, deps: RunDeps, settings: RunSettings, depth: int) -> Toolbox:
        # Without the filter, which may name tools of the client's servers; applied below.
        ours = self._ours(deps, replace(settings, tools=None), depth)
        adapted = (self._adapted(tool, deps, settings, depth) for tool in ours)
        offered = [tool for tool in adapted if tool is not None]
        offered += self._servers.tools()
        return Toolbox(tool for tool in offered if self._is_wanted(tool.spec.name, settings))

    def _adapted(self, tool: Tool, deps: RunDeps, settings: RunSettings, depth: int) -> Tool | None:
        """Our tool with the client's skills or agents; None for a skill tool without skills."""
        if isinstance(tool, SkillTool):
            return SkillTool(self.skills) if self.skills else None
        if tool.kind != "agent" or not self.agents:
            return tool
        return DefinedAgents(deps, settings, depth, self.agents, self._environ)

    def _is_wanted(self, name: str, settings: RunSettings) -> bool:
        if name in self._denied or (settings.tools is not None and name not in settings.tools):
            return False
        return self._only is None or name in self._only or name.startswith("mcp__")
