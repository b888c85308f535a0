"""Heddle's own directory: its config, its instructions and its transcripts."""

import os
from typing import Any

from batten.serve.output import say

_LARGEST = 256 * 1024
"""Bytes read of a file."""


class Home:
    """The directory in `HEDDLE_HOME`; without one, nothing is read or written."""

    def __init__(self, named: str) -> None:
        self.path = os.path.abspath(os.path.expanduser(named)) if named else ""

    def config(self) -> dict[str, Any]:
        """The content of `config.toml`; empty if it is missing or invalid."""
        text = self._read("config.toml")
        if not text:
            return {}
        import tomllib

        try:
            return tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            say(f"batten: {self.path}/config.toml is not read: {error}")
            return {}

    def instructions(self) -> list[str]:
        """The texts of `AGENTS.md`, in any case, and `MEMORY.md`."""
        try:
            names = sorted(os.listdir(self.path)) if self.path else []
        except OSError:
            return []
        found = [name for name in names if name.lower() == "agents.md"][:1]
        texts = [self._read(name) for name in (*found, "MEMORY.md")]
        return [text.strip() for text in texts if text.strip()]

    def transcript_path(self, workspace: str, session_id: str) -> str | None:
        """The path where Heddle's other programs expect the session's transcript."""
        if not self.path:
            return None
        project = workspace.replace("/", "-")
        return os.path.join(self.path, "projects", project, "sessions", f"{session_id}.jsonl")

    def _read(self, name: str) -> str:
        if not self.path:
            return ""
        try:
            with open(os.path.join(self.path, name), "rb") as file:
                return file.read(_LARGEST).decode(errors="replace")
        except OSError:
            return ""
