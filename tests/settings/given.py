"""A machine of one user: its folders, and the settings that are read there."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from batten.settings.contract import Settings
from batten.settings.reader import read_settings
from batten.settings.supplied import survey
from batten.settings.trust import record_trust

SCOPES = ("managed", "user", "project", "local", "flag")

HOOK = {"matcher": "bash", "handlers": [{"type": "command", "command": "./guard"}]}


class Machine:
    def __init__(self, directory: Path) -> None:
        self.home = directory / "state"
        self.workspace = directory / "workspace"
        self.config = directory / "config" / "batten"
        self.managed = directory / "managed.json"
        for folder in (self.home, self.workspace, self.config):
            folder.mkdir(parents=True)
        self.environ = {
            "HOME": str(directory),
            "XDG_CONFIG_HOME": str(directory / "config"),
            "BATTEN_MANAGED_SETTINGS": str(self.managed),
        }

    def path(self, scope: str, kind: str = "json") -> Path:
        """The file of a scope."""
        return {
            "managed": self.managed,
            "user": self.config / f"settings.{kind}",
            "project": self.workspace / ".batten" / f"settings.{kind}",
            "local": self.workspace / ".batten" / f"settings.local.{kind}",
            "flag": self.home / f"flag.{kind}",
        }[scope]

    def say(self, scope: str, content: Mapping[str, Any]) -> Path:
        """Settings of a scope; `flag` is a file that `--settings` then names."""
        return write(self.path(scope), msgspec.json.encode(content))

    def read(
        self,
        *,
        sources: tuple[str, ...] | None = None,
        flag: str | None = None,
        plugin_dirs: Sequence[str] = (),
        without: frozenset[str] = frozenset(),
    ) -> Settings:
        file = self.path("flag")
        return read_settings(
            workspace=str(self.workspace),
            home=str(self.home),
            environ=self.environ,
            flag=str(file) if flag is None and file.exists() else flag,
            sources=sources,
            plugin_dirs=plugin_dirs,
            without=without,
        )

    def trust(self) -> None:
        contents, _ = survey(str(self.workspace), self.environ)
        digests = {content.name: content.digest for content in contents}
        record_trust(str(self.home), str(self.workspace), digests)

    def plugin(self, folder: Path, name: str = "audit", **files: Any) -> Path:
        """A plugin that brings `hooks`, `mcp` and `skills`."""
        manifest = {"name": name, "version": "1.2", "description": "what it is"}
        write(folder / "plugin.json", msgspec.json.encode(manifest))
        if "hooks" in files:
            write(folder / "hooks/hooks.json", msgspec.json.encode({"hooks": files["hooks"]}))
        if "mcp" in files:
            write(folder / ".mcp.json", msgspec.json.encode({"mcpServers": files["mcp"]}))
        for skill in files.get("skills", ()):
            write_skill(folder / "skills", skill)
        return folder


def write(path: Path, data: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def write_skill(folder: Path, name: str, body: str = "Do it well.") -> Path:
    text = f"---\nname: {name}\ndescription: When to {name}.\n---\n\n{body}\n"
    return write(folder / name / "SKILL.md", text)
