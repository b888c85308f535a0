"""prompt: responses, their chunks and their totals, tools, and raw events."""

from batten.conformance.bench import Bench
from batten.conformance.check import check, equal, expect, fields, part
from batten.conformance.maestro.controller import FINAL, Controller, of
from batten.conformance.script import Fail, Say, Wait, run

_ALL = (Say(FINAL),)
_TEXT = (Say(f"First one thing. {FINAL}"),)
_USAGE = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


@Controller.check("maestro.prompt.response", "response_start", script=(_TEXT,))
async def response(controller: Controller) -> None:
    """A response starts once, its chunks carry its id, and it ends exactly once."""
    heard = await controller.prompt()
    heard += await controller.fence()
    responses = [one for one in heard if str(one.get("type")).startswith("response_")]
    kinds = [one["type"] for one in responses]
    equal(kinds[0], "response_start", "the first message of the response")
    equal(kinds[-1], "response_end", "the last message of the response")
    equal(set(kinds[1:-1]), {"response_chunk"}, "what is between start and end")
    equal(len({one.get("response_id") for one in responses}), 1, "the number of response ids")


@Controller.check("maestro.prompt.text", "response_chunk", script=(_TEXT,))
async def text(controller: Controller) -> None:
    """The chunks put together are the model's text, each once."""
    heard = await controller.prompt()
    chunks = of(heard, "response_chunk")
    for one in chunks:
        fields(one, content=str, is_thinking=bool)
    spoken = "".join(one["content"] for one in chunks if not one["is_thinking"])
    equal(spoken, _TEXT[0].text, "the text")


@Controller.check("maestro.prompt.usage", "response_end", script=(_TEXT,))
async def usage(controller: Controller) -> None:
    """response_end has the whole usage, and total_tokens is the sum of the four counts."""
    usage = part((await controller.prompt())[-1], "usage")
    fields(usage, **dict.fromkeys((*_USAGE, "total_tokens", "total_cost_usd"), (int, float)))
    fields(usage, model_id=str, provider=str)
    equal(usage["total_tokens"], sum(usage[name] for name in _USAGE), "total_tokens")


@Controller.check("maestro.prompt.totals", "response_end", script=((run("echo hi"),), _ALL))
async def totals(controller: Controller) -> None:
    """response_end has duration_ms and a tools_summary."""
    heard = await controller.use_tools()
    for ended in of(heard, "response_end"):
        fields(ended, duration_ms=(int, float), tools_summary=dict)
        fields(ended["tools_summary"], tools_used=list, calls_succeeded=int, calls_failed=int)
        expect(ended["duration_ms"] >= 0, "duration_ms is negative")


@Controller.check("maestro.prompt.again", "prompt", script=(_ALL, _ALL))
async def again(controller: Controller) -> None:
    """The next prompt has a response of its own, with another id."""
    for text_of_prompt in ("one", "two"):
        await controller.prompt(text_of_prompt)
    ids = [one.get("response_id") for one in controller.of("response_end")]
    expect(len(set(ids)) == len(ids) == 2, f"the ids of the responses are {ids}")


@Controller.check(
    "maestro.prompt.one_at_a_time", "prompt", level="should", script=((Say("a"), Wait(60)),)
)
async def one_at_a_time(controller: Controller) -> None:
    """A second prompt while one works is refused; the first goes on."""
    await controller.say("prompt", content="one")
    await controller.until("response_chunk")
    await controller.say("prompt", content="two")
    await controller.refused()
    await controller.fence()
    equal(len(controller.of("response_start")), 1, "the number of responses")


@Controller.check("maestro.prompt.attachment_missing", "prompt", level="should", script=(_ALL,))
async def attachment_missing(controller: Controller) -> None:
    """A file that cannot be attached is reported, and the prompt runs without it."""
    await controller.say("prompt", content="Look.", attachments=["missing.txt"])
    await controller.refused("missing.txt")
    await controller.answered()


@Controller.check("maestro.prompt.attachment", "prompt", script=(_ALL,))
async def attachment(controller: Controller) -> None:
    """The text of a file that is attached reaches the model."""
    path = controller.bench.put("score.txt", "A dotted minim.\n")
    await controller.say("prompt", content="Look.", attachments=[path])
    await controller.answered()
    expect(
        controller.bench.model.last_request().says("A dotted minim."),
        "the model did not get the text",
    )


@Controller.check("maestro.prompt.model_fails", "error", script=((Fail(401, "Wrong key"),),))
async def model_fails(controller: Controller) -> None:
    """A model that fails is an error that is not fatal, and the process goes on."""
    await controller.say("prompt", content="go")
    await controller.refused()
    await controller.fence()


@Controller.check("maestro.tools.paired", "tool_start", script=((run("echo hi"),), _ALL))
async def paired(controller: Controller) -> None:
    """A tool call has one tool_start and one tool_end; a tool_call, if any, comes before."""
    heard = await controller.use_tools()
    kinds = ("tool_call", "tool_start", "tool_end")
    messages = [one for one in heard if one.get("type") in kinds]
    order = [one["type"] for one in messages]
    expect(order in (list(kinds), list(kinds[1:])), f"the order is {order}")
    equal(len({one.get("call_id") for one in messages}), 1, "the number of call ids")
    for one in of(messages, "tool_call"):
        fields(one, tool=str, requires_approval=bool)
    equal(messages[-1].get("success"), True, "tool_end.success")


@check("maestro.raw_events.opt_in", "raw_agent_event", script=(_ALL,))
async def raw_events(bench: Bench) -> None:
    """raw_agent_event is sent to clients that asked for it."""
    controller = await Controller.ready(bench, raw=True)
    if not controller.capabilities.get("raw_agent_events"):
        controller.offers("raw_agent_events", "true")
    heard = await controller.prompt()
    raw = of(heard, "raw_agent_event")
    expect(bool(raw), "there is no raw_agent_event")
    for one in raw:
        fields(one, event_type=str)
        expect("event" in one, "raw_agent_event has no event")


@Controller.check("maestro.raw_events.not_asked", "raw_agent_event", script=(_ALL,))
async def raw_events_not_asked(controller: Controller) -> None:
    """raw_agent_event is not sent to clients that did not ask for it."""
    heard = await controller.prompt()
    expect(not of(heard, "raw_agent_event"), "there is a raw_agent_event")
