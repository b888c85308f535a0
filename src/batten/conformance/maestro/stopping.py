"""interrupt, cancel and shutdown, at work and idle."""

from batten.conformance.bench import Bench
from batten.conformance.check import check, equal, expect
from batten.conformance.maestro.controller import Controller
from batten.conformance.script import ENDLESS, Say, Wait, run

_INTERRUPT = "interrupt"
_SLOW = (Say("I begin."), Wait(60))
_TOUCH = (run("touch {workspace}/made"),)


async def _ended_by(bench: Bench, kind: str) -> None:
    controller = await Controller.ready(bench)
    await controller.say("prompt", content="go")
    started = await controller.until("response_start")
    await controller.until("response_chunk")
    await controller.say(kind)
    ended = await controller.until("response_end")
    equal(ended.get("response_id"), started.get("response_id"), "response_end.response_id")
    await controller.fence()
    equal(len(controller.of("response_end")), 1, "the number of response_end messages")


@check("maestro.interrupt.running", _INTERRUPT, script=(_SLOW,))
async def interrupt(bench: Bench) -> None:
    """interrupt ends the response that runs, once."""
    await _ended_by(bench, "interrupt")


@check("maestro.cancel.running", "cancel", script=(_SLOW,))
async def cancel(bench: Bench) -> None:
    """cancel is another name of interrupt."""
    await _ended_by(bench, "cancel")


@Controller.check("maestro.interrupt.idle", _INTERRUPT)
async def idle(controller: Controller) -> None:
    """interrupt with nothing to end is harmless."""
    await controller.say("interrupt")
    heard = await controller.fence()
    wrong = [one for one in heard if one.get("type") in ("error", "response_end")]
    expect(not wrong, f"{wrong[:1]}")


@Controller.check("maestro.interrupt.next", _INTERRUPT, script=(_SLOW, _SLOW))
async def next_prompt(controller: Controller) -> None:
    """After an interrupt the next prompt is taken."""
    for text in ("one", "two"):
        await controller.say("prompt", content=text)
        await controller.until("response_chunk")
        await controller.say("interrupt")
        await controller.until("response_end")
    equal(len({one["response_id"] for one in controller.of("response_end")}), 2, "responses")


@check("maestro.interrupt.request", _INTERRUPT, script=(_TOUCH,))
async def request(bench: Bench) -> None:
    """interrupt resolves a request that waits as cancelled by the runtime, once."""
    controller = await Controller.ready(bench, ["approval"])
    controller.offers("server_requests", "approval")
    await controller.say("init", approval_mode="prompt")
    await controller.say("prompt", content="go")
    server_request = await controller.until("server_request")
    await controller.say("interrupt")
    resolved = await controller.until("server_request_resolved")
    equal(resolved.get("request_id"), server_request["request_id"], "request_id")
    equal(resolved.get("resolution"), "cancelled", "resolution")
    equal(resolved.get("resolved_by"), "runtime", "resolved_by")
    await controller.fence()
    equal(len(controller.of("server_request_resolved")), 1, "how often it was resolved")
    expect(not bench.has("made"), "the command ran")


@Controller.check("maestro.interrupt.tool", _INTERRUPT, level="should", script=((ENDLESS,),))
async def tool(controller: Controller) -> None:
    """interrupt stops the tool that runs."""
    await controller.say("init", approval_mode="auto")
    await controller.say("prompt", content="go")
    await controller.until("tool_start")
    await controller.bench.grows("beat")
    await controller.say("interrupt")
    await controller.bench.rests("beat")
    await controller.fence()


@Controller.check("maestro.interrupt.utilities", _INTERRUPT, level="should")
async def utilities(controller: Controller) -> None:
    """interrupt ends utility commands and watches, and reports each."""
    controller.offers("utility_operations", "command_exec")
    await controller.say("utility_command_start", command_id="u", command="sleep 60")
    await controller.until("utility_command_started")
    await controller.say("utility_file_watch_start", watch_id="w")
    await controller.until("utility_file_watch_started")
    await controller.say("interrupt")
    missing = {"utility_command_exited", "utility_file_watch_stopped"}
    while missing:
        missing.discard(str((await controller.subject.hear(" and ".join(missing))).get("type")))


@Controller.check("maestro.shutdown.exit", "shutdown")
async def shutdown(controller: Controller) -> None:
    """shutdown ends the process with 0."""
    await controller.say("shutdown")
    await controller.subject.rest()
    equal(await controller.subject.exit_code(), 0, "the exit code")


@Controller.check("maestro.shutdown.running", "shutdown", script=(_SLOW,))
async def shutdown_running(controller: Controller) -> None:
    """shutdown does not wait for the prompt that runs; the exit code is 0."""
    await controller.say("prompt", content="go")
    await controller.until("response_chunk")
    await controller.say("shutdown")
    await controller.subject.rest()
    equal(await controller.subject.exit_code(), 0, "the exit code")
