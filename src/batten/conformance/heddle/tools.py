"""Tools in a send: pairs, order, loops, and approval modes."""

from batten.conformance.bench import Bench
from batten.conformance.check import NotOffered, check, equal, expect, fields
from batten.conformance.heddle.worker import TOOLS, Worker, events, refusal, succeeded
from batten.conformance.script import Call, Say, run

_LOOK = Call("glob", {"pattern": "*.md"})
_READ = Call("read", {"path": "{workspace}/notes.md"})
_LONG = run("head -c 5000 /dev/zero | tr '\\0' x")
_TOUCH = run("touch {workspace}/made")
_DONE = (Say("Done."),)


@Worker.check("heddle.tools.paired", "tool_start", script=((_LOOK,), (_READ,), _DONE))
async def paired(worker: Worker) -> None:
    """Each tool_start is followed by a tool_end of the same name before the next one starts."""
    heard = await worker.sent()
    result = succeeded(heard)
    open_call = ""
    for one in events(heard):
        if one["event"] == "tool_start":
            expect(not open_call, f"{one['name']} starts while {open_call} runs")
            fields(one, name=str, args=dict)
            open_call = one["name"]
        elif one["event"] == "tool_end":
            equal(one.get("name"), open_call, "tool_end.name")
            fields(one, result_preview=str)
            open_call = ""
    expect(not open_call, f"{open_call} has no tool_end")
    starts = [(one["name"], one["args"]) for one in events(heard, "tool_start")]
    expect(len(starts) == 2, f"two tools were called, {len(starts)} started")
    calls = [(one["name"], one["args"]) for one in result["tool_calls_made"]]
    equal(calls, starts, "tool_calls_made")


@Worker.check("heddle.tools.in_order", "tool_start", level="should", script=((_LOOK, _READ), _DONE))
async def in_order(worker: Worker) -> None:
    """Calls of one turn run one after the other, in the order of the model."""
    heard = await worker.sent()
    succeeded(heard)
    wanted = ["tool_start", "tool_end"]
    pairs = [one for one in events(heard) if one["event"] in wanted]
    equal([one["event"] for one in pairs], wanted * 2, "the order of the events")
    equal([one["name"] for one in pairs[::2]], ["glob", "read_file"], "the order of the tools")


@check("heddle.tools.enabled", "init", script=(_DONE,))
async def enabled(bench: Bench) -> None:
    """The model is offered the tools that init enables, and none of the others it could name."""
    worker = await Worker.ready(bench, tools=["read_file", "glob"])
    succeeded(await worker.sent())
    offered = set(bench.model.last_request().offered)
    expect({"read_file", "glob"} <= offered, f"it is offered {sorted(offered)}")
    others = offered & (set(TOOLS) - {"read_file", "glob"})
    expect(not others, f"it is also offered {sorted(others)}")


@check("heddle.tools.none", "init", script=(_DONE,))
async def none(bench: Bench) -> None:
    """If init enables no tool, the model is offered none."""
    worker = await Worker.ready(bench, tools=[])
    succeeded(await worker.sent())
    offered = sorted(bench.model.last_request().offered)
    expect(not offered, f"it is offered {offered}")


@check("heddle.init.system_prompt", "init", script=(_DONE,))
async def system_prompt(bench: Bench) -> None:
    """The system prompt of init and the message of a send reach the model."""
    worker = await Worker.ready(bench, system_prompt="Answer like a weaver.")
    succeeded(await worker.sent(message="What is a heddle?"))
    for text in ("Answer like a weaver.", "What is a heddle?"):
        expect(bench.model.last_request().says(text), f"the request to the model lacks {text!r}")


@Worker.check("heddle.tools.preview", "tool_end", level="should", script=((_LONG,), _DONE))
async def preview(worker: Worker) -> None:
    """result_preview has at most 500 characters."""
    heard = await worker.sent()
    succeeded(heard)
    (ended,) = events(heard, "tool_end")
    expect(len(ended["result_preview"]) <= 500, f"it has {len(ended['result_preview'])}")


@Worker.check("heddle.tools.loop", "Error Envelope", script=(*((_LOOK,) for _ in range(12)), _DONE))
async def loop(worker: Worker) -> None:
    """Identical calls again and again end the send with loop_detected, event and result."""
    heard = await worker.sent()
    refusal(heard[-1], "loop_detected")
    codes = [one.get("code") for one in events(heard, "error")]
    equal(codes, ["loop_detected"], "the codes of the error events")
    await worker.alive()


_SUGGEST = {"HEDDLE_APPROVAL_MODE": "suggest"}


@Worker.check(
    "heddle.approval.denied", "permission_denied", script=((_TOUCH,), _DONE), environ=_SUGGEST
)
async def denied(worker: Worker) -> None:
    """A call that needs approval gets permission_request, permission_denied, and does not run."""
    heard = await worker.sent()
    result = succeeded(heard)
    decisions = [one for one in events(heard) if str(one["event"]).startswith("permission_")]
    if not decisions and events(heard, "tool_start"):
        raise NotOffered("HEDDLE_APPROVAL_MODE changes nothing")
    equal(
        [one["event"] for one in decisions],
        ["permission_request", "permission_denied"],
        "the permission events",
    )
    for one in decisions:
        fields(one, name=str)
    fields(decisions[1], reason=str)
    expect(not events(heard, "tool_start"), "the denied call started")
    expect(not worker.bench.has("made"), "the denied command ran")
    equal(result["tool_calls_made"], [], "tool_calls_made")


_PLAN = {"HEDDLE_APPROVAL_MODE": "plan"}


@Worker.check(
    "heddle.approval.plan",
    "plan_complete",
    level="should",
    script=((Say("1. Look."),),),
    environ=_PLAN,
)
async def plan(worker: Worker) -> None:
    """In plan mode the answer is also sent as plan_complete."""
    heard = await worker.sent()
    succeeded(heard)
    plans = [one.get("plan") for one in events(heard, "plan_complete")]
    equal(plans, ["1. Look."], "the plans")
