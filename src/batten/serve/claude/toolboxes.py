"""Which tools a run of the SDK's is offered: ours as far as it wants them, and those it lends."""

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
    """Makes the toolbox of each run anew: servers come and go between them."""

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
        """Those that the client defined."""
        self.skills = tuple(skills)
        """Those that are offered."""

    def offer_skills(self, names: Collection[str]) -> None:
        """Offer no others than these. A plugin's may be named with the plugin before it."""
        bare = {name.rpartition(":")[2] for name in names}
        self.skills = tuple(skill for skill in self.skills if skill.name in bare)

    def __call__(self, deps: RunDeps, settings: RunSettings, depth: int) -> Toolbox:
        # Names of tools that servers lend are not known there.
        ours = self._ours(deps, replace(settings, tools=None), depth)
        adapted = (self._adapted(tool, deps, settings, depth) for tool in ours)
        offered = [tool for tool in adapted if tool is not None]
        offered += self._servers.tools()
        return Toolbox(tool for tool in offered if self._is_wanted(tool.spec.name, settings))

    def _adapted(self, tool: Tool, deps: RunDeps, settings: RunSettings, depth: int) -> Tool | None:
        """A tool of ours as the client wants it; None if it then has nothing to offer."""
        if isinstance(tool, SkillTool):
            return SkillTool(self.skills) if self.skills else None
        if tool.kind != "agent" or not self.agents:
            return tool
        return DefinedAgents(deps, settings, depth, self.agents, self._environ)

    def _is_wanted(self, name: str, settings: RunSettings) -> bool:
        if name in self._denied or (settings.tools is not None and name not in settings.tools):
            return False
        return self._only is None or name in self._only or name.startswith("mcp__")
