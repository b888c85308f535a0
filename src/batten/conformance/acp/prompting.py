"""session/prompt: updates and the one answer that ends a turn."""

from batten.conformance.acp.editor import (
    AUTHENTICATION_REQUIRED,
    Editor,
    choosing,
    failure,
    prompt,
    stop_reason,
)
from batten.conformance.bench import Bench
from batten.conformance.check import Json, NotOffered, check, equal, expect, fields, part, parts
from batten.conformance.script import Call, Fail, Say, Wait, run

_TURN = "Prompt Turn"
_TOOLS = "Tool Calls"
_ANSWER = "First one thing. That is all."
_ALL = (Say(_ANSWER),)
_STATUS = ("pending", "in_progress", "completed", "failed")
_KINDS = ("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode")
_TEXTS = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk")
_WORK = (*_TEXTS, "tool_call", "tool_call_update", "plan")
_OTHERS = {
    "available_commands_update": "availableCommands",
    "current_mode_update": "currentModeId",
    "config_option_update": "configOptions",
    "session_info_update": "sessionUpdate",
    "usage_update": "used",
}
_ALLOW = {"session/request_permission": choosing("allow_once", "allow_always")}


@Editor.check("acp.prompt.end_turn", _TURN, script=(_ALL,))
async def end_turn(editor: Editor) -> None:
    """A turn that ends well is answered with the stop reason end_turn."""
    equal(await editor.prompt(await editor.open()), "end_turn", "stopReason")


@Editor.check("acp.prompt.text", _TURN, script=(_ALL,))
async def text(editor: Editor) -> None:
    """The model's text comes as agent_message_chunk updates, each piece once."""
    await editor.prompt(await editor.open())
    equal(editor.text(), _ANSWER, "the text of all chunks")


@Editor.check("acp.prompt.updates_before", _TURN, script=(_ALL, _ALL))
async def updates_before(editor: Editor) -> None:
    """All updates of a turn come before its answer, which comes once."""
    session_id = await editor.open()
    request_id = await editor.send("session/prompt", prompt(session_id))
    equal(stop_reason(await editor.answer(request_id)), "end_turn", "stopReason")
    count = len(editor.kinds(*_WORK))
    await editor.open()
    late = editor.kinds(*_WORK)[count:]
    expect(not late, f"this came after the answer: {late[:1]}")
    answers = [
        one for one in editor.subject.heard if one.get("id") == request_id and "method" not in one
    ]
    equal(len(answers), 1, "the number of answers")


@check("acp.prompt.update_shape", "Schema", script=((run("echo hi"),), _ALL))
async def update_shape(bench: Bench) -> None:
    """Updates name their session, are of the protocol's kinds and have the fields of those."""
    editor = await Editor.ready(bench, _ALLOW)
    session_id = await editor.open()
    await editor.prompt(session_id)
    for params in editor.updates:
        equal(params.get("sessionId"), session_id, "sessionId")
        _shape(params["update"])


def _shape(update: Json) -> None:
    kind = update.get("sessionUpdate")
    if kind in _TEXTS:
        fields(update, content=dict)
        fields(update["content"], type=str)
    elif kind == "tool_call":
        fields(update, toolCallId=str, title=str)
    elif kind == "tool_call_update":
        fields(update, toolCallId=str)
    elif kind == "plan":
        fields(update, entries=list)
    else:
        expect(kind in _OTHERS, f"sessionUpdate is {kind!r}")
        expect(_OTHERS[str(kind)] in update, f"{kind} has no {_OTHERS[str(kind)]}")
    status = update.get("status")
    if str(kind).startswith("tool_call") and status is not None:
        expect(status in _STATUS, f"status is {status!r}")
    tool_kind = update.get("kind")
    expect(tool_kind is None or tool_kind in (*_KINDS, "other"), f"kind is {tool_kind!r}")


@Editor.check("acp.prompt.resource_link", "Content", script=(_ALL,))
async def resource_link(editor: Editor) -> None:
    """Text and resource links are always taken."""
    params = prompt(await editor.open(), "Look at this.")
    uri = f"file://{editor.bench.workspace}/notes.md"
    params["prompt"].append({"type": "resource_link", "uri": uri, "name": "notes.md"})
    equal(stop_reason(await editor.ask("session/prompt", params)), "end_turn", "stopReason")


@Editor.check("acp.prompt.not_advertised", "Content", level="should", script=(_ALL,))
async def not_advertised(editor: Editor) -> None:
    """A block of a kind that was not advertised is refused, and the session goes on."""
    if part(editor.agent, "promptCapabilities").get("audio"):
        raise NotOffered("the agent takes audio, too")
    session_id = await editor.open()
    block = {"type": "audio", "data": "", "mimeType": "audio/wav"}
    await editor.refused("session/prompt", {"sessionId": session_id, "prompt": [block]})
    equal(await editor.prompt(session_id), "end_turn", "stopReason")


@Editor.check("acp.prompt.two_sessions", _TURN, level="should", script=((Say("Begun."), Wait(60)),))
async def two_sessions(editor: Editor) -> None:
    """Sessions work side by side: a turn of one does not hold up another."""
    first, second = await editor.open(), await editor.open()
    turns = [await editor.send("session/prompt", prompt(one)) for one in (first, second)]
    waiting = {first, second}
    while waiting:
        waiting -= {
            one["sessionId"]
            for one in editor.updates
            if one["update"].get("sessionUpdate") == "agent_message_chunk"
        }
        if waiting:
            await editor.step("the beginnings of two answers")
    for session_id, turn in zip((first, second), turns, strict=True):
        await editor.notify("session/cancel", {"sessionId": session_id})
        equal(stop_reason(await editor.answer(turn)), "cancelled", "stopReason")


@Editor.check("acp.prompt.model_fails", _TURN, level="should", script=((Fail(401, "Wrong key"),),))
async def model_fails(editor: Editor) -> None:
    """A model that cannot be reached is an error, but not -32000, and the session stays open."""
    session_id = await editor.open()
    answered = await editor.ask("session/prompt", prompt(session_id))
    failure(answered)
    code = answered["error"]["code"]
    expect(code != AUTHENTICATION_REQUIRED, f"{code} asks the client to authenticate")
    await editor.open()


@check("acp.tools.lifecycle", _TOOLS, script=((run("echo hi"),), _ALL))
async def lifecycle(bench: Bench) -> None:
    """A call is announced as tool_call first, then updated, and ends completed."""
    editor = await Editor.ready(bench, _ALLOW)
    await editor.prompt(await editor.open())
    bench.needs_tools()
    updates = editor.kinds("tool_call", "tool_call_update")
    expect(bool(updates), "no tool call is reported")
    known: set[str] = set()
    for one in updates:
        if one["sessionUpdate"] == "tool_call":
            expect(one["toolCallId"] not in known, f"{one['toolCallId']} is announced twice")
            known.add(one["toolCallId"])
        expect(one["toolCallId"] in known, f"{one['toolCallId']} is updated before it is announced")
    equal([one["status"] for one in updates if "status" in one][-1], "completed", "the last status")


_WRITE = Call("write", {"path": "{workspace}/made", "content": "made\n"})


@check("acp.tools.edit", _TOOLS, script=((_WRITE,), _ALL))
async def edit(bench: Bench) -> None:
    """Paths of a call, in locations and diffs, are absolute."""
    editor = await Editor.ready(bench, _ALLOW)
    await editor.prompt(await editor.open())
    bench.needs_tools()
    for one in editor.kinds("tool_call", "tool_call_update"):
        places = [*parts(one, "locations")]
        for item in parts(one, "content"):
            expect(item.get("type") in ("content", "diff", "terminal"), f"content: {item}")
            if item["type"] == "diff":
                fields(item, path=str, newText=str)
                places.append(item)
        for place in places:
            expect(str(place["path"]).startswith("/"), f"{place['path']} is relative")
    expect(bench.has("made"), "the file was not written")
