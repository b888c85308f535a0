"""session/request_permission: its content, and the effect of each answer."""

from batten.conformance.acp.editor import Editor, choosing, prompt, stop_reason
from batten.conformance.bench import Bench
from batten.conformance.check import Json, NotOffered, check, equal, expect, fields
from batten.conformance.script import Say, Script, run

_PERMISSION = "Requesting Permission"
_ASK = "session/request_permission"
_TOUCH: Script = ((run("touch {workspace}/made"),), (Say("That is all."),))
_OPTIONS = ("allow_once", "allow_always", "reject_once", "reject_always")


def _not_yet(request: Json) -> Json | None:
    return None


async def _asked(bench: Bench) -> tuple[Editor, object, Json]:
    """A turn up to its permission request, left unanswered."""
    editor = await Editor.ready(bench, {_ASK: _not_yet})
    session_id = await editor.open()
    turn = await editor.send("session/prompt", prompt(session_id))
    while not editor.requests:
        message = await editor.step("a permission request")
        if message.get("id") == turn and "method" not in message:
            bench.needs_tools()
            raise NotOffered("the agent runs commands without asking")
    request = editor.requests[0]
    equal(request["params"].get("sessionId"), session_id, "sessionId")
    return editor, turn, request


@check("acp.permission.request", _PERMISSION, script=_TOUCH)
async def request_shape(bench: Bench) -> None:
    """A request names the call, and options with ids, names and kinds, before anything is done."""
    _, _, request = await _asked(bench)
    params = request["params"]
    fields(params, toolCall=dict, options=list)
    fields(params["toolCall"], toolCallId=str)
    expect(bool(params["options"]), "there are no options")
    for option in params["options"]:
        fields(option, optionId=str, name=str, kind=str)
        expect(option["kind"] in _OPTIONS, f"kind is {option['kind']!r}")
    expect(not bench.has("made"), "the command ran before it was allowed")


@check("acp.permission.told_before", _PERMISSION, level="should", script=_TOUCH)
async def told_before(bench: Bench) -> None:
    """The call that a request is about was announced before as tool_call."""
    editor, _, request = await _asked(bench)
    ids = [one.get("toolCallId") for one in editor.kinds("tool_call")]
    expect(request["params"]["toolCall"].get("toolCallId") in ids, f"only {ids} were announced")


@check("acp.permission.allowed", _PERMISSION, script=_TOUCH)
async def allowed(bench: Bench) -> None:
    """A call that is allowed runs, and the turn goes on to its end."""
    editor, turn, request = await _asked(bench)
    await editor.reply(request, choosing("allow_once", "allow_always")(request) or {})
    equal(stop_reason(await editor.answer(turn)), "end_turn", "stopReason")
    expect(bench.has("made"), "the command did not run")
    equal(len(editor.requests), 1, "how often it was asked")


@check("acp.permission.rejected", _PERMISSION, script=_TOUCH)
async def rejected(bench: Bench) -> None:
    """A call that is rejected never runs and ends failed; the turn is answered."""
    editor, turn, request = await _asked(bench)
    await editor.reply(request, choosing("reject_once", "reject_always")(request) or {})
    stop_reason(await editor.answer(turn))
    expect(not bench.has("made"), "the command ran")
    statuses = [one["status"] for one in editor.kinds("tool_call_update") if "status" in one]
    equal(statuses[-1:], ["failed"], "the last status")


@check("acp.permission.twice", _PERMISSION, script=_TOUCH)
async def twice(bench: Bench) -> None:
    """The first answer counts; a second one is ignored."""
    editor, turn, request = await _asked(bench)
    await editor.reply(request, choosing("reject_once", "reject_always")(request) or {})
    await editor.reply(request, choosing("allow_once", "allow_always")(request) or {})
    stop_reason(await editor.answer(turn))
    await editor.open()
    expect(not bench.has("made"), "the command ran")


@check("acp.permission.unknown_option", _PERMISSION, level="should", script=_TOUCH)
async def unknown_option(bench: Bench) -> None:
    """An option that was not offered does not allow the call."""
    editor, turn, request = await _asked(bench)
    await editor.reply(request, {"outcome": {"outcome": "selected", "optionId": "no option"}})
    await editor.answer(turn)
    expect(not bench.has("made"), "the command ran")


@check("acp.permission.cancelled", _PERMISSION, script=_TOUCH)
async def cancelled(bench: Bench) -> None:
    """A cancel while a request waits: it is answered cancelled, and so is the turn."""
    editor, turn, request = await _asked(bench)
    await editor.notify("session/cancel", {"sessionId": request["params"]["sessionId"]})
    await editor.reply(request, {"outcome": {"outcome": "cancelled"}})
    equal(stop_reason(await editor.answer(turn)), "cancelled", "stopReason")
    expect(not bench.has("made"), "the command ran")
