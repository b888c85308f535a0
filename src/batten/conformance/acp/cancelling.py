"""session/cancel: the turn is answered `cancelled`."""

from batten.conformance.acp.editor import Editor, choosing, prompt, stop_reason
from batten.conformance.bench import Bench
from batten.conformance.check import check, equal
from batten.conformance.script import ENDLESS, Say, Wait, run

_CANCEL = "Cancellation"
_SLOW = (Say("Begun."), Wait(60))
_ALLOW = {"session/request_permission": choosing("allow_once", "allow_always")}


async def _cancelled(editor: Editor, session_id: str, turn: object) -> None:
    await editor.notify("session/cancel", {"sessionId": session_id})
    equal(stop_reason(await editor.answer(turn)), "cancelled", "stopReason")


@Editor.check("acp.cancel.running", _CANCEL, script=(_SLOW, _SLOW))
async def running(editor: Editor) -> None:
    """A turn that is cancelled while the model speaks is answered cancelled, not an error."""
    session_id = await editor.open()
    turn = await editor.send("session/prompt", prompt(session_id))
    await editor.until_update("agent_message_chunk")
    await _cancelled(editor, session_id, turn)


@Editor.check("acp.cancel.next", _CANCEL, script=(_SLOW, _SLOW))
async def next_prompt(editor: Editor) -> None:
    """After a cancel the next prompt is taken."""
    session_id = await editor.open()
    for text in ("one", "two"):
        turn = await editor.send("session/prompt", prompt(session_id, text))
        await editor.until_update("agent_message_chunk")
        await _cancelled(editor, session_id, turn)


@check("acp.cancel.tool", _CANCEL, script=((run("sleep 60"),),))
async def tool(bench: Bench) -> None:
    """A turn that is cancelled while a command runs is answered cancelled."""
    editor = await Editor.ready(bench, _ALLOW)
    session_id = await editor.open()
    turn = await editor.send("session/prompt", prompt(session_id))
    await editor.until_update("tool_call")
    await _cancelled(editor, session_id, turn)


@check("acp.cancel.tool_stopped", _CANCEL, level="should", script=((ENDLESS,),))
async def tool_stopped(bench: Bench) -> None:
    """A cancel stops the command itself."""
    editor = await Editor.ready(bench, _ALLOW)
    session_id = await editor.open()
    turn = await editor.send("session/prompt", prompt(session_id))
    while not editor.requests and not editor.kinds("tool_call_update"):
        await editor.step("a call that is asked about or runs")
    await bench.grows("beat")
    await _cancelled(editor, session_id, turn)
    await bench.rests("beat")


@Editor.check("acp.cancel.behind_prompt", _CANCEL, script=(_SLOW,))
async def behind_prompt(editor: Editor) -> None:
    """A cancel that comes right behind its prompt counts."""
    session_id = await editor.open()
    request = {"jsonrpc": "2.0", "id": "turn", "method": "session/prompt"}
    cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session_id}}
    await editor.subject.say({**request, "params": prompt(session_id)}, cancel)
    equal(stop_reason(await editor.answer("turn")), "cancelled", "stopReason")


@Editor.check("acp.cancel.idle", _CANCEL)
async def idle(editor: Editor) -> None:
    """A cancel with nothing to cancel, or of an unknown session, has no answer."""
    session_id = await editor.open()
    before = [one for one in editor.subject.heard if "method" not in one]
    for named in (session_id, "nobody"):
        await editor.notify("session/cancel", {"sessionId": named})
    await editor.open()
    after = [one for one in editor.subject.heard if "method" not in one]
    equal(len(after), len(before) + 1, "the number of answers")
