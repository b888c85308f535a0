"""session/new, load, resume, list, close and set_mode."""

import sys

from batten.conformance.acp.editor import Editor, prompt
from batten.conformance.acp.mcp_server import MCP_SERVER, MCP_TOOL
from batten.conformance.bench import Bench, leave
from batten.conformance.check import Json, NotOffered, check, equal, expect, fields, parts
from batten.conformance.script import Say

_SETUP = "Session Setup"
_MODES = "Session Modes"
_ANSWER = "That is all."
_ALL = (Say(_ANSWER),)


@Editor.check("acp.session.new", _SETUP)
async def new(editor: Editor) -> None:
    """session/new gives each session an id of its own."""
    first, second = await editor.open(), await editor.open()
    expect(first != second, "both sessions have the same id")


@Editor.check("acp.session.relative_cwd", _SETUP)
async def relative_cwd(editor: Editor) -> None:
    """cwd must be an absolute path."""
    await editor.open()
    await editor.refused("session/new", {"cwd": "somewhere", "mcpServers": []}, -32602)


@Editor.check("acp.session.unknown", _SETUP)
async def unknown(editor: Editor) -> None:
    """A prompt to a session that does not exist is an error."""
    await editor.open()
    await editor.refused("session/prompt", prompt("nobody"))
    await editor.open()


async def _modes(bench: Bench, editor: Editor) -> tuple[str, Json]:
    opened = await editor.new_session()
    modes = opened.get("modes")
    if not modes:
        raise NotOffered("session/new tells no modes")
    return opened["sessionId"], modes


@check("acp.modes.told", _MODES)
async def modes_told(bench: Bench) -> None:
    """The modes of a session have an id and a name, and the current one is among them."""
    _, modes = await _modes(bench, await Editor.ready(bench))
    for mode in modes["availableModes"]:
        fields(mode, id=str, name=str)
    known = [mode["id"] for mode in modes["availableModes"]]
    expect(modes["currentModeId"] in known, f"{modes['currentModeId']} is not in {known}")


@Editor.check("acp.modes.set", _MODES)
async def modes_set(editor: Editor) -> None:
    """session/set_mode takes each advertised mode, and refuses others."""
    session_id, modes = await _modes(editor.bench, editor)
    for mode in modes["availableModes"]:
        await editor.call("session/set_mode", {"sessionId": session_id, "modeId": mode["id"]})
    await editor.refused("session/set_mode", {"sessionId": session_id, "modeId": "no mode"})


@Editor.check("acp.config.set", "Session Config Options")
async def config_set(editor: Editor) -> None:
    """session/set_config_option takes each value of a select and answers with all options."""
    opened = await editor.new_session()
    options = parts(opened, "configOptions")
    if not options:
        raise NotOffered("session/new tells no options")
    for option in options:
        fields(option, id=str, name=str, type=str)
        expect("currentValue" in option, f"{option['id']} has no currentValue")
    for option in [one for one in options if one["type"] == "select"]:
        for value in [one["value"] for one in option["options"] if "value" in one][:3]:
            params: Json = {
                "sessionId": opened["sessionId"],
                "configId": option["id"],
                "value": value,
            }
            result = await editor.call("session/set_config_option", params)
            now = {one["id"]: one["currentValue"] for one in parts(result, "configOptions")}
            expect(option["id"] in now, f"the answer does not tell {option['id']}")
            equal(now[option["id"]], value, f"currentValue of {option['id']}")


@Editor.check("acp.session.mcp_stdio", _SETUP, script=(_ALL,))
async def mcp_stdio(editor: Editor) -> None:
    """An MCP server on standard streams is started, and its tools are offered to the model."""
    path = editor.bench.put("mcp_server.py", MCP_SERVER)
    env = [{"name": "CONFORMANCE_MARK", "value": "marked"}]
    server = {"name": "suite", "command": sys.executable, "args": ["-I", path], "env": env}
    session_id = (await editor.new_session(server))["sessionId"]
    equal(await editor.prompt(session_id), "end_turn", "stopReason")
    expect(editor.bench.has("marked"), "the server was not started with its variables")
    offered = list(editor.bench.model.last_request().offered)
    expect(any(MCP_TOOL in one for one in offered), f"the model is offered {offered}")


async def _earlier(bench: Bench) -> str:
    """A session with one turn, of a process that has ended."""
    editor = await Editor.ready(bench)
    session_id = await editor.open()
    equal(await editor.prompt(session_id, "What I asked."), "end_turn", "stopReason")
    await leave(editor.subject)
    return session_id


@check("acp.session.load", _SETUP, script=(_ALL,))
async def load(bench: Bench) -> None:
    """session/load shows the whole conversation as updates, then answers."""
    (await Editor.ready(bench)).offers("loadSession")
    session_id = await _earlier(bench)
    editor = await Editor.ready(bench)
    params: Json = {"sessionId": session_id, "cwd": bench.workspace, "mcpServers": []}
    await editor.call("session/load", params)
    equal(editor.text("user_message_chunk"), "What I asked.", "the prompt that is shown")
    equal(editor.text(), _ANSWER, "the answer that is shown")
    for update in editor.updates:
        equal(update.get("sessionId"), session_id, "sessionId")


@Editor.check("acp.session.load_unknown", _SETUP)
async def load_unknown(editor: Editor) -> None:
    """Loading a session that does not exist is an error."""
    editor.offers("loadSession")
    params: Json = {"sessionId": "nobody", "cwd": editor.bench.workspace, "mcpServers": []}
    await editor.refused("session/load", params)


@check("acp.session.resume", "Session Resume", script=(_ALL, _ALL))
async def resume(bench: Bench) -> None:
    """session/resume opens an earlier session without showing it again."""
    (await Editor.ready(bench)).offers("sessionCapabilities", "resume")
    session_id = await _earlier(bench)
    editor = await Editor.ready(bench)
    params: Json = {"sessionId": session_id, "cwd": bench.workspace, "mcpServers": []}
    await editor.call("session/resume", params)
    shown = editor.kinds("user_message_chunk", "agent_message_chunk", "tool_call")
    expect(not shown, f"it was shown again: {shown[:1]}")
    equal(await editor.prompt(session_id), "end_turn", "stopReason")


@Editor.check("acp.session.fork", "Session Fork", script=(_ALL, _ALL))
async def fork(editor: Editor) -> None:
    """session/fork opens a new session with the history of another one, which stays."""
    editor.offers("sessionCapabilities", "fork")
    original = await editor.open()
    equal(await editor.prompt(original, "What I asked."), "end_turn", "stopReason")
    params: Json = {"sessionId": original, "cwd": editor.bench.workspace, "mcpServers": []}
    forked = await editor.call("session/fork", params)
    fields(forked, sessionId=str)
    expect(forked["sessionId"] != original, "both sessions have the same id")
    equal(await editor.prompt(forked["sessionId"]), "end_turn", "stopReason")
    said = editor.bench.model.last_request().says("What I asked.")
    expect(said, "the model does not know what was said before the fork")


@check("acp.session.list", "Session List", script=(_ALL,))
async def listed(bench: Bench) -> None:
    """session/list names earlier sessions with their directory."""
    (await Editor.ready(bench)).offers("sessionCapabilities", "list")
    session_id = await _earlier(bench)
    listing = await (await Editor.ready(bench)).call("session/list", {})
    fields(listing, sessions=list)
    found = [one for one in listing["sessions"] if one.get("sessionId") == session_id]
    expect(len(found) == 1, f"the session is listed {len(found)} times")
    equal(found[0].get("cwd"), bench.workspace, "cwd")


@Editor.check("acp.session.close", "Session Close")
async def close(editor: Editor) -> None:
    """A session that was closed takes no more prompts."""
    editor.offers("sessionCapabilities", "close")
    session_id = await editor.open()
    await editor.call("session/close", {"sessionId": session_id})
    await editor.refused("session/prompt", prompt(session_id))
