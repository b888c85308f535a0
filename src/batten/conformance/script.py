"""The model's part in a check, turn by turn; also as a scenario file."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

Json = dict[str, Any]
SCENARIO_SCHEMA = "evalops.maestro.scripted-scenario.v1"


class Say(Struct, frozen=True):
    text: str


class Wait(Struct, frozen=True):
    seconds: float


class Call(Struct, frozen=True):
    """A tool call by ability; the program's tools give its name and arguments."""

    ability: str
    values: dict[str, str]
    """`{workspace}` in a value is the program's working directory."""


class Fail(Struct, frozen=True):
    """The provider answers with an error."""

    status: int
    message: str


Statement = Say | Wait | Call | Fail
Frame = tuple[Statement, ...]
Script = tuple[Frame, ...]
"""One frame is one message of the model."""


class Ability(Struct, frozen=True):
    """Tools with one ability: their usual names, and the usual names of each argument."""

    names: tuple[str, ...]
    arguments: dict[str, tuple[str, ...]]


_PATH = ("file_path", "path", "filePath", "filename", "file")
ABILITIES = {
    "run": Ability(
        ("bash", "Bash", "shell", "execute", "run_command", "exec_command", "shell_exec"),
        {"command": ("command", "cmd", "script")},
    ),
    "read": Ability(("read_file", "Read", "read", "view", "file_read"), {"path": _PATH}),
    "write": Ability(
        ("write_file", "Write", "write", "create_file", "file_write"),
        {"path": _PATH, "content": ("content", "text", "contents")},
    ),
    "glob": Ability(("glob", "Glob", "find_files"), {"pattern": ("pattern", "glob")}),
    "ask": Ability(("ask_user", "AskUser", "AskUserQuestion"), {"question": ("question", "text")}),
    "lookup": Ability(("conformance_lookup",), {"key": ("key",)}),
}


def run(command: str) -> Call:
    return Call("run", {"command": command})


ENDLESS = run("while :; do echo x >> {workspace}/beat; sleep 0.05; done")
"""A command that keeps writing to the file `beat` while it runs."""


def chosen(call: Call, offered: Mapping[str, Any], workspace: str) -> tuple[str, Json] | None:
    """The offered tool with this ability and its arguments; `offered` maps names to properties."""
    ability = ABILITIES[call.ability]
    name = next((one for one in ability.names if one in offered), None)
    if name is None:
        return None
    arguments = {
        next((one for one in ability.arguments[key] if one in offered[name]), key): value
        for key, value in values(call, workspace).items()
    }
    return name, arguments


def values(call: Call, workspace: str) -> dict[str, str]:
    return {key: value.replace("{workspace}", workspace) for key, value in call.values.items()}


def scenario(script: Script, workspace: str) -> bytes:
    frames = [
        {"index": index, "statements": [_statement(one, workspace) for one in frame]}
        for index, frame in enumerate(script)
    ]
    return msgspec.json.encode(
        {
            "schemaVersion": SCENARIO_SCHEMA,
            "id": "conformance",
            "description": "A model for one check.",
            "metadata": {"recordedAt": "2026-01-01T00:00:00.000Z", "toolsExpected": []},
            "frames": frames,
        }
    )


def _statement(statement: Statement, workspace: str) -> Json:
    match statement:
        case Say(text):
            return {"kind": "text", "text": text}
        case Wait(seconds):
            return {"kind": "delay", "ms": int(seconds * 1000)}
        case Fail(_, message):
            return {"kind": "error", "type": "fatal", "message": message}
        case Call(ability, _):
            known = ABILITIES[ability]
            arguments = {
                known.arguments[key][0]: value
                for key, value in values(statement, workspace).items()
            }
            return {"kind": "tool_call", "tool": known.names[0], "input": arguments}
