"""cancel: a running send, one just requested, and one that does not exist."""

from batten.conformance.bench import Bench
from batten.conformance.check import Json, check, equal, expect
from batten.conformance.heddle.worker import Worker, cancel, refusal, send, status, succeeded
from batten.conformance.script import ENDLESS, Say, Wait, run

_SLOW = (Say("I begin."), Wait(60), Say("Too late."))
_NEXT = (Say("Next."),)


async def _cancelled(worker: Worker) -> Json:
    await worker.subject.say(cancel())
    result = await worker.result()
    refusal(result, "cancelled")
    return result


@check("heddle.cancel.running", "cancel", script=(_SLOW, _SLOW))
async def running(bench: Bench) -> None:
    """cancel ends the send that runs with the code cancelled; the next send is taken."""
    worker = await Worker.ready(bench)
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


@check("heddle.cancel.tool", "cancel", script=((run("sleep 60"),), _NEXT))
async def tool(bench: Bench) -> None:
    """cancel ends a send whose tool runs."""
    worker = await Worker.ready(bench)
    await worker.subject.say(send())
    await worker.event("tool_start")
    await _cancelled(worker)
    await worker.alive()


@check("heddle.cancel.tool_stopped", "cancel", level="should", script=((ENDLESS,), _NEXT))
async def tool_stopped(bench: Bench) -> None:
    """cancel stops the tool itself."""
    worker = await Worker.ready(bench)
    await worker.subject.say(send())
    await worker.event("tool_start")
    await bench.grows("beat")
    await _cancelled(worker)
    await bench.rests("beat")


@check("heddle.cancel.behind_send", "cancel", script=(_SLOW,))
async def behind_send(bench: Bench) -> None:
    """A cancel that comes right behind its send counts."""
    worker = await Worker.ready(bench)
    await worker.subject.say(send(), cancel())
    refusal(await worker.result(), "cancelled")
    await worker.alive()


@check("heddle.cancel.unknown", "cancel")
async def unknown(bench: Bench) -> None:
    """A cancel that names no send has no answer."""
    worker = await Worker.ready(bench)
    await worker.subject.say(cancel("nobody"), status("next"))
    await worker.answer("status_ok", "next")


@check("heddle.cancel.finished", "cancel", script=(_NEXT, _NEXT))
async def finished(bench: Bench) -> None:
    """A cancel of a send that has ended changes nothing."""
    worker = await Worker.ready(bench)
    succeeded(await worker.sent())
    await worker.subject.say(cancel(), status("next"))
    await worker.answer("status_ok", "next")
    succeeded(await worker.sent("s2"))


@check("heddle.cancel.other", "cancel", script=(_SLOW,))
async def other(bench: Bench) -> None:
    """A cancel that names another send does not end the one that runs."""
    worker = await Worker.ready(bench)
    await worker.subject.say(send())
    await worker.event("content_delta")
    before = len(worker.subject.heard)
    await worker.subject.say(cancel("nobody"), cancel())
    refusal(await worker.result(), "cancelled")
    results = [one for one in worker.subject.heard[before:] if one.get("type") == "result"]
    equal(len(results), 1, "the number of results")


@check("heddle.status.while_active", "status_ok", level="should", script=(_SLOW,))
async def status_while_active(bench: Bench) -> None:
    """status is answered at once while a send works, with active true."""
    worker = await Worker.ready(bench)
    await worker.subject.say(send())
    await worker.event("content_delta")
    await worker.subject.say(status("now"))
    now = await worker.subject.until(lambda one: one.get("type") == "status_ok", "status_ok")
    equal(now.get("active"), True, "active")
    await _cancelled(worker)
