"""cancel: a running send, one just requested, and one that does not exist."""

from batten.conformance.check import Json, equal, expect
from batten.conformance.heddle.worker import Worker, cancel, refusal, send, status, succeeded
from batten.conformance.script import ENDLESS, Say, Wait, run

_SLOW = (Say("I begin."), Wait(60), Say("Too late."))
_NEXT = (Say("Next."),)


async def _cancelled(worker: Worker) -> Json:
    await worker.subject.say(cancel())
    result = await worker.result()
    refusal(result, "cancelled")
    return result


@Worker.check("heddle.cancel.running", "cancel", script=(_SLOW, _SLOW))
async def running(worker: Worker) -> None:
    """cancel ends the send that runs with the code cancelled; the next send is taken."""
    await worker.subject.say(send())
    await worker.event("content_delta")
    result = await _cancelled(worker)
    expect("response" not in result, "a cancelled send has no response")
    await worker.alive()
    await worker.subject.say(send("next"))
    await worker.subject.until(
        lambda one: one.get("send_id") == "next", "an event of the next send"
    )
    await worker.subject.say(cancel("next"))
    await worker.result("next")


@Worker.check("heddle.cancel.tool", "cancel", script=((run("sleep 60"),), _NEXT))
async def tool(worker: Worker) -> None:
    """cancel ends a send whose tool runs."""
    await worker.subject.say(send())
    await worker.event("tool_start")
    await _cancelled(worker)
    await worker.alive()


@Worker.check("heddle.cancel.tool_stopped", "cancel", level="should", script=((ENDLESS,), _NEXT))
async def tool_stopped(worker: Worker) -> None:
    """cancel stops the tool itself."""
    await worker.subject.say(send())
    await worker.event("tool_start")
    await worker.bench.grows("beat")
    await _cancelled(worker)
    await worker.bench.rests("beat")


@Worker.check("heddle.cancel.behind_send", "cancel", script=(_SLOW,))
async def behind_send(worker: Worker) -> None:
    """A cancel that comes right behind its send counts."""
    await worker.subject.say(send(), cancel())
    refusal(await worker.result(), "cancelled")
    await worker.alive()


@Worker.check("heddle.cancel.unknown", "cancel")
async def unknown(worker: Worker) -> None:
    """A cancel that names no send has no answer."""
    await worker.subject.say(cancel("nobody"), status("next"))
    await worker.answer("status_ok", "next")


@Worker.check("heddle.cancel.finished", "cancel", script=(_NEXT, _NEXT))
async def finished(worker: Worker) -> None:
    """A cancel of a send that has ended changes nothing."""
    succeeded(await worker.sent())
    await worker.subject.say(cancel(), status("next"))
    await worker.answer("status_ok", "next")
    succeeded(await worker.sent("s2"))


@Worker.check("heddle.cancel.other", "cancel", script=(_SLOW,))
async def other(worker: Worker) -> None:
    """A cancel that names another send does not end the one that runs."""
    await worker.subject.say(send())
    await worker.event("content_delta")
    before = len(worker.subject.heard)
    await worker.subject.say(cancel("nobody"), cancel())
    refusal(await worker.result(), "cancelled")
    results = [one for one in worker.subject.heard[before:] if one.get("type") == "result"]
    equal(len(results), 1, "the number of results")


@Worker.check("heddle.status.while_active", "status_ok", level="should", script=(_SLOW,))
async def status_while_active(worker: Worker) -> None:
    """status is answered at once while a send works, with active true."""
    await worker.subject.say(send())
    await worker.event("content_delta")
    await worker.subject.say(status("now"))
    now = await worker.subject.until(lambda one: one.get("type") == "status_ok", "status_ok")
    equal(now.get("active"), True, "active")
    await _cancelled(worker)
