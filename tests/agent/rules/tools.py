"""Tools as rules see them."""

from typing import Any

from batten.contract.facts.tool import ToolKind
from batten.models.contract import ToolSpec
from batten.tools.contract import Effect, ToolContext, ToolOutput


class Named:
    """A name, an effect, a subject and the names of its arguments."""

    def __init__(
        self, name: str, effect: Effect, subject: str, *keys: str, kind: ToolKind = "custom"
    ) -> None:
        self.effect: Effect = effect
        self.kind: ToolKind = kind
        properties = {key: {"type": "string"} for key in keys}
        self.spec = ToolSpec(name, "", {"type": "object", "properties": properties})
        self._subject = subject

    def subject(self, arguments: dict[str, Any]) -> str:
        return self._subject

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        raise AssertionError("a decision runs nothing")


def shell(command: str) -> Named:
    return Named("bash", "execute", command, "command", "timeout", kind="shell")


def reader(path: str) -> Named:
    return Named("read_file", "read", path, "file_path", kind="file_read")


def writer(path: str) -> Named:
    return Named("write_file", "write", path, "file_path", "content", kind="file_write")


def editor(path: str) -> Named:
    return Named("edit_file", "write", path, "file_path", kind="edit")


def searcher(path: str) -> Named:
    return Named("grep", "read", path, "pattern", "path", kind="grep")


def fetcher(url: str) -> Named:
    return Named("web_fetch", "network", url, "url", kind="web_fetch")
