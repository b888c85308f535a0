"""send: its events, their numbers, and the one result."""

from batten.conformance.bench import Bench
from batten.conformance.check import Json, NotOffered, check, equal, expect, fields
from batten.conformance.heddle.worker import Worker, envelope, events, refusal, send, succeeded
from batten.conformance.script import Call, Fail, Say, Script, Wait

ANSWER = "This is the whole answer."
ONE: Script = ((Say(ANSWER),), (Say("And another."),))
LOOK = Call("glob", {"pattern": "*.md"})
TWO: Script = ((LOOK,), (Say(ANSWER),))
CODES = (
    *("provider_error", "protocol_error", "protocol_version_mismatch"),
    *("tool_error", "loop_detected", "cancelled"),
)
_LATENCIES = ("model_latency_ms", "tool_latency_ms", "total_latency_ms")


@Worker.check("heddle.send.one_result", "result", script=ONE)
async def one_result(worker: Worker) -> None:
    """Each send has exactly one result with its id; no event follows it."""
    for send_id in ("s1", "s2"):
        succeeded(await worker.sent(send_id))
        await worker.alive(f"after {send_id}")
    worker.subject.hang_up()
    after = await worker.subject.rest()
    expect(not after, f"this is said after the results: {after[:1]}")


@Worker.check("heddle.send.event_seq", "event", script=(TWO[0], TWO[1], (Say("Again."),)))
async def event_seq(worker: Worker) -> None:
    """event_seq counts the events of a send from 0 without gaps, and anew for each send."""
    for send_id in ("s1", "s2"):
        heard = await worker.sent(send_id)
        succeeded(heard)
        numbers = [one.get("event_seq") for one in heard if one.get("type") == "event"]
        expect(bool(numbers), "the send has no events")
        equal(numbers, list(range(len(numbers))), f"event_seq of {send_id}")


@Worker.check("heddle.send.send_id", "event", script=TWO)
async def send_id(worker: Worker) -> None:
    """Every event carries the id of its send."""
    heard = await worker.sent("the send")
    succeeded(heard)
    for one in heard[:-1]:
        equal(one.get("type"), "event", "what comes before the result")
        equal(one.get("send_id"), "the send", "send_id")


@Worker.check("heddle.send.text", "content_delta", script=ONE)
async def text(worker: Worker) -> None:
    """The content_delta texts put together are the response of the result."""
    heard = await worker.sent()
    result = succeeded(heard)
    text_sent = "".join(one["text"] for one in events(heard, "content_delta"))
    equal(result.get("response"), ANSWER, "result.response")
    equal(text_sent, ANSWER, "the text of all content_delta events")


@Worker.check("heddle.send.correlation", "event", greets=False, script=ONE)
async def correlation(worker: Worker) -> None:
    """task_id and worker_id of init, and the session id, are on every event and the result."""
    opened = await worker.open(task_id="T-1", worker_id="W-1")
    heard = await worker.sent()
    succeeded(heard)
    for one in heard:
        equal(one.get("task_id"), "T-1", f"{one['type']}.task_id")
        equal(one.get("worker_id"), "W-1", f"{one['type']}.worker_id")
        equal(one.get("session_id"), opened["session_id"], f"{one['type']}.session_id")


@Worker.check("heddle.send.no_correlation", "event", script=ONE)
async def no_correlation(worker: Worker) -> None:
    """Without task_id and worker_id in init there are none in events and results."""
    heard = await worker.sent()
    succeeded(heard)
    for one in heard:
        named = [name for name in ("task_id", "worker_id") if one.get(name) is not None]
        expect(not named, f"{one['type']} has {named}")


@Worker.check("heddle.send.usage", "usage", script=TWO)
async def usage(worker: Worker) -> None:
    """usage of the result is the sum of the usage events."""
    heard = await worker.sent()
    result = succeeded(heard)
    counts = events(heard, "usage")
    if not worker.bench.model.requests and not counts:
        raise NotOffered("a model that plays a scenario counts no tokens")
    fields(result, usage=dict)
    expect(bool(counts), "there is no usage event")
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        equal(result["usage"].get(name), sum(one[name] for one in counts), f"usage.{name}")


@Worker.check("heddle.send.result_fields", "result", script=TWO)
async def result_fields(worker: Worker) -> None:
    """A result has tool_calls_made and iterations; latencies, if present, are not negative."""
    result = succeeded(await worker.sent())
    fields(result, tool_calls_made=list, iterations=int)
    equal(result["iterations"], 2, "iterations")
    for name in set(_LATENCIES) & result.keys():
        fields(result, **{name: (int, float)})
        expect(result[name] >= 0, f"{name} is negative")


@Worker.check("heddle.send.latencies", "result", level="should", script=ONE)
async def latencies(worker: Worker) -> None:
    """A result has the latency of the model, of tools and of the whole send."""
    result = succeeded(await worker.sent())
    fields(result, **dict.fromkeys(_LATENCIES, (int, float)))


@Worker.check("heddle.send.history", "status_ok", script=ONE)
async def history(worker: Worker) -> None:
    """The conversation grows with each send."""
    counts = [(await worker.alive("0"))["messages_count"]]
    for send_id in ("1", "2"):
        succeeded(await worker.sent(send_id))
        counts.append((await worker.alive(f"after {send_id}"))["messages_count"])
    expect(counts == sorted(set(counts)), f"messages_count does not grow: {counts}")


@check("heddle.send.max_iterations", "init", script=(TWO[0], TWO[0], TWO[1]))
async def max_iterations(bench: Bench) -> None:
    """max_iterations ends a send that would take more."""
    worker = await Worker.ready(bench, max_iterations=1)
    result = (await worker.sent())[-1]
    fields(result, iterations=int)
    expect(result["iterations"] <= 1, f"it made {result['iterations']} iterations")
    expect(len(bench.model.requests) <= 1, f"the model was asked {len(bench.model.requests)} times")
    expect(result.get("response") != ANSWER, "the model had the last word")


@check("heddle.send.max_iterations_error", "init", level="should", script=(TWO[0], TWO[0], TWO[1]))
async def max_iterations_error(bench: Bench) -> None:
    """A send that max_iterations ended is an error."""
    result = (await (await Worker.ready(bench, max_iterations=1)).sent())[-1]
    equal(result.get("status"), "error", "result.status")
    fields(result, error=dict)


@check("heddle.send.codes", "Error Envelope", script=(TWO[0], TWO[0], TWO[1]))
async def codes(bench: Bench) -> None:
    """A client of 0.2.0 hears only the six error codes of 0.2.0."""
    heard = await (await Worker.ready(bench, max_iterations=1)).sent()
    errors = [*events(heard, "error"), *(one["error"] for one in heard if one.get("error"))]
    for error in errors:
        fields(error, code=str)
        expect(error["code"] in CODES, f"{error['code']!r} is not one of {', '.join(CODES)}")


@Worker.check("heddle.send.blank", "send", level="should")
async def blank(worker: Worker) -> None:
    """A send whose message is blank is refused with protocol_error, and the session goes on."""
    for message in ("", " \n"):
        await worker.subject.say(send("blank", message))
        await worker.refused("blank")
    await worker.alive()


@Worker.check(
    "heddle.send.same_id",
    "result",
    level="should",
    script=((Say("One."), Wait(0.4)), (Say("Two."),)),
)
async def same_id(worker: Worker) -> None:
    """A send with the id of the one that works does not end that one: its id has one result."""
    await worker.subject.say(send("s"), send("s"))
    first = await worker.result()
    succeeded([first])
    equal(first.get("response"), "One.", "result.response")
    await worker.alive()


@Worker.check("heddle.send.provider_error", "Error Envelope", script=((Fail(401, "Wrong key"),),))
async def provider_error(worker: Worker) -> None:
    """A provider's failure is an error event, then an error result that says the same."""
    heard = await worker.sent()
    errors = events(heard, "error")
    expect(len(errors) == 1, f"there are {len(errors)} error events")
    refusal(heard[-1], "provider_error")
    envelope(errors[0], "provider_error")
    equal(errors[0]["message"], heard[-1]["error"]["message"], "the event's message")
    await worker.alive()


@Worker.check("heddle.send.while_active", "send", script=((Say("One."), Wait(0.4)), (Say("Two."),)))
async def while_active(worker: Worker) -> None:
    """A send while another one works is refused or waits: either way one result for each."""
    await worker.subject.say(send("s1"), send("s2"))
    results: list[Json] = []
    while len(results) < 2:
        results.append(
            await worker.subject.until(lambda one: one.get("type") == "result", "two results")
        )
    equal(sorted(str(one.get("id")) for one in results), ["s1", "s2"], "the ids of the results")
    succeeded([one for one in results if one["id"] == "s1"])
    second = next(one for one in results if one["id"] == "s2")
    if second.get("status") != "ok":
        refusal(second, "protocol_error")
    await worker.alive()
