"""Files and terminals of the client: used only where it offers them."""

from collections.abc import Mapping

from batten.conformance.acp.editor import Editor, Serve, choosing
from batten.conformance.bench import Bench
from batten.conformance.check import Json, NotOffered, check, equal, expect, fields
from batten.conformance.script import Call, Say, Script, run

_FILES = "File System"
_TERMINALS = "Terminals"
_ALL = (Say("That is all."),)
_READ: Script = ((Call("read", {"path": "{workspace}/notes.md"}),), _ALL)
_WRITE: Script = ((Call("write", {"path": "{workspace}/made", "content": "made\n"}),), _ALL)
_RUN: Script = ((run("echo hi"),), _ALL)
_ASK = "session/request_permission"
_ALLOW: Mapping[str, Serve] = {_ASK: choosing("allow_once", "allow_always")}
_TERMINAL = "conformance-terminal"
_STATUS: Json = {"exitCode": 0, "signal": None}


async def _turn(bench: Bench, serving: Mapping[str, Serve], capabilities: Json) -> Editor:
    editor = await Editor.ready(bench, {**_ALLOW, **serving}, capabilities)
    equal(await editor.prompt(await editor.open()), "end_turn", "stopReason")
    bench.needs_tools()
    return editor


def _of(editor: Editor, method: str) -> list[Json]:
    return [one["params"] for one in editor.requests if one["method"] == method]


def _unsaved(request: Json) -> Json:
    return {"content": "unsaved\n"}


def _nothing(request: Json) -> Json:
    return {}


@check("acp.fs.read", _FILES, script=_READ)
async def read(bench: Bench) -> None:
    """An agent that reads through the client names the session and an absolute path."""
    editor = await _turn(bench, {"fs/read_text_file": _unsaved}, {"fs": {"readTextFile": True}})
    requests = _of(editor, "fs/read_text_file")
    if not requests:
        raise NotOffered("the agent reads files by itself")
    for params in requests:
        fields(params, sessionId=str, path=str)
        expect(params["path"].startswith("/"), f"{params['path']} is relative")


@check("acp.fs.write", _FILES, script=_WRITE)
async def write(bench: Bench) -> None:
    """An agent that writes through the client gives the whole content, and an absolute path."""
    serving = {"fs/write_text_file": _nothing, "fs/read_text_file": _unsaved}
    editor = await _turn(bench, serving, {"fs": {"writeTextFile": True}})
    requests = _of(editor, "fs/write_text_file")
    if not requests:
        raise NotOffered("the agent writes files by itself")
    fields(requests[-1], sessionId=str, path=str, content=str)
    equal(requests[-1]["content"], "made\n", "content")
    expect(requests[-1]["path"].startswith("/"), f"{requests[-1]['path']} is relative")
    equal(_of(editor, "fs/read_text_file"), [], "reads without the capability")


@check("acp.fs.not_offered", _FILES, script=(_READ[0], _WRITE[0], _ALL))
async def fs_not_offered(bench: Bench) -> None:
    """Without the capability the agent requests no file of the client's."""
    editor = await _turn(bench, {}, {})
    methods = [one for one in editor.methods() if one.startswith("fs/")]
    expect(not methods, f"it asked for {methods}")


def _terminals() -> dict[str, Serve]:
    def create(request: Json) -> Json:
        return {"terminalId": _TERMINAL}

    def output(request: Json) -> Json:
        return {"output": "hi\n", "truncated": False, "exitStatus": _STATUS}

    def wait(request: Json) -> Json:
        return dict(_STATUS)

    return {
        "terminal/create": create,
        "terminal/output": output,
        "terminal/wait_for_exit": wait,
        "terminal/kill": _nothing,
        "terminal/release": _nothing,
    }


@check("acp.terminal.released", _TERMINALS, script=_RUN)
async def released(bench: Bench) -> None:
    """A terminal is created for the session's command and released exactly once, at the end."""
    editor = await _turn(bench, _terminals(), {"terminal": True})
    methods = [one for one in editor.methods() if one.startswith("terminal/")]
    if not methods:
        raise NotOffered("the agent runs commands by itself")
    equal(methods[0], "terminal/create", "the first request")
    fields(_of(editor, "terminal/create")[0], sessionId=str, command=str)
    equal(methods.count("terminal/release"), methods.count("terminal/create"), "releases")
    equal(methods[-1], "terminal/release", "the last request")
    for one in editor.requests:
        if one["method"] in ("terminal/output", "terminal/wait_for_exit", "terminal/release"):
            equal(one["params"].get("terminalId"), _TERMINAL, "terminalId")


@check("acp.terminal.not_offered", _TERMINALS, script=_RUN)
async def terminal_not_offered(bench: Bench) -> None:
    """Without the capability the agent requests no terminal of the client's."""
    editor = await _turn(bench, {}, {})
    methods = [one for one in editor.methods() if one.startswith("terminal/")]
    expect(not methods, f"it asked for {methods}")
