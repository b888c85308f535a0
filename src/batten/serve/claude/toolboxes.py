"""Which tools a run of the SDK's is offered: ours as far as it wants them, and those it lends."""

from collections.abc import Mapping

from msgspec.structs import replace

from batten.agent.rig import Rig
from batten.agent.settings import RunSettings
from batten.protocols.claude.argv import Invocation
from batten.serve.claude.agents import DefinedAgents, Definition
from batten.serve.claude.servers import LentServers
from batten.tools.contract import Tool
from batten.tools.registry import Toolbox


class ClientToolboxes:
    """Makes the toolbox of each run anew: servers come and go between them."""

    def __init__(
        self, rig: Rig, invoked: Invocation, servers: LentServers, environ: Mapping[str, str]
    ) -> None:
        self._ours = rig.toolbox
        self._only = invoked.tools
        self._denied = {rule for rule in invoked.denied if "(" not in rule}
        self._servers = servers
        self._environ = environ
        self.agents: dict[str, Definition] = {}
        """Those that the client defined."""

    def __call__(self, rig: Rig, settings: RunSettings, depth: int) -> Toolbox:
        # Names of tools that servers lend are not known there.
        ours = self._ours(rig, replace(settings, tools=None), depth)
        offered = [*(self._defined(tool, rig, settings, depth) for tool in ours)]
        offered += self._servers.tools()
        return Toolbox(tool for tool in offered if self._is_wanted(tool.spec.name, settings))

    def _defined(self, tool: Tool, rig: Rig, settings: RunSettings, depth: int) -> Tool:
        if tool.kind != "agent" or not self.agents:
            return tool
        return DefinedAgents(rig, settings, depth, self.agents, self._environ)

    def _is_wanted(self, name: str, settings: RunSettings) -> bool:
        if name in self._denied or (settings.tools is not None and name not in settings.tools):
            return False
        return self._only is None or name in self._only or name.startswith("mcp__")
