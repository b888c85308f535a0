"""Heartbeats, draining, the end of input, and the content of standard output."""

from itertools import pairwise

from batten.conformance.check import equal, expect, fields
from batten.conformance.heddle.worker import Worker, cancel, events, init, send, succeeded
from batten.conformance.lines import GARBAGE, only_objects
from batten.conformance.script import Call, Say, Wait

_SOON = (Say("A moment."), Wait(0.4), Say(" Done."))
_SLOW = (Say("A moment."), Wait(60))
_DEFAULT_MS = 5000
_OFTEN = {"HEDDLE_HEARTBEAT_INTERVAL": "50"}
_KINDS = {"init_ok", "event", "result", "status_ok", "shutdown_ok"}


@Worker.check("heddle.heartbeat.beats", "heartbeat", script=(_SLOW,), environ=_OFTEN)
async def beats(worker: Worker) -> None:
    """Heartbeats come in their interval while a send works, and stop before the result."""
    await worker.subject.say(send())
    for _ in range(4):
        await worker.event("heartbeat")
    await worker.subject.say(cancel())
    await worker.result()
    await worker.alive()
    beats_seen = events(worker.subject.heard, "heartbeat")
    for one in beats_seen:
        fields(one, duration_ms=(int, float))
    durations = [one["duration_ms"] for one in beats_seen]
    expect(durations[0] > 0, "the first duration is not above 0")
    expect(durations == sorted(durations), f"the durations do not grow: {durations}")
    least = min(later - one for one, later in pairwise(durations))
    expect(least < _DEFAULT_MS / 2, f"they come every {least} ms; {_OFTEN} was set")


@Worker.check("heddle.shutdown.drains", "shutdown", script=(_SOON,))
async def shutdown_drains(worker: Worker) -> None:
    """shutdown waits for the send that works: its result comes before shutdown_ok."""
    await worker.subject.say(send(), {"type": "shutdown", "id": "bye"})
    messages = await worker.subject.rest()
    kinds = [one.get("type") for one in messages if one.get("type") != "event"]
    equal(kinds, ["result", "shutdown_ok"], "what follows a shutdown behind a send")
    succeeded([one for one in messages if one["type"] == "result"])
    equal(await worker.subject.exit_code(), 0, "the exit code")


@Worker.check("heddle.eof.idle", "Protocol Overview", level="should")
async def idle(worker: Worker) -> None:
    """The end of input ends an idle process with 0, without a farewell."""
    worker.subject.hang_up()
    messages = await worker.subject.rest()
    expect(not messages, f"it says farewell: {messages[:1]}")
    equal(await worker.subject.exit_code(), 0, "the exit code")


@Worker.check(
    "heddle.eof.drains", "Protocol Overview", greets=False, level="should", script=(_SOON,)
)
async def eof_drains(worker: Worker) -> None:
    """Requests made before the end of input are finished."""
    await worker.subject.say(init(), send())
    worker.subject.hang_up()
    messages = await worker.subject.rest()
    succeeded([one for one in messages if one.get("type") == "result"] or [{}])
    equal(await worker.subject.exit_code(), 0, "the exit code")


@Worker.check(
    "heddle.stdout.only_messages",
    "Protocol Overview",
    script=((Call("glob", {"pattern": "*.md"}),), (Say("Done."),)),
)
async def only_messages(worker: Worker) -> None:
    """Standard output holds nothing but the protocol's messages, one JSON object a line."""
    await worker.subject.write(GARBAGE + b"\n")
    await worker.sent()
    await worker.subject.say({"type": "shutdown", "id": "bye"})
    await worker.subject.rest()
    only_objects(worker.subject)
    kinds = {str(one.get("type")) for one in worker.subject.heard}
    expect(kinds <= _KINDS, f"no messages of the protocol: {sorted(kinds - _KINDS)}")
    expect("shutdown_ok" in kinds, "the conversation was not answered to its end")
