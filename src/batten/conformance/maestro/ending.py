"""Concurrent work, the end of input, and the content of standard output."""

from batten.conformance.bench import leave
from batten.conformance.check import equal, expect
from batten.conformance.lines import GARBAGE, only_objects
from batten.conformance.maestro.controller import FINAL, Controller
from batten.conformance.script import Say, Wait, run

_TRANSPORT = "Transport rules"
_SLOW = (Say("I begin."), Wait(60))
_KINDS = {
    *("hello_ok", "ready", "session_info", "connection_info", "compaction", "status", "error"),
    *("response_start", "response_chunk", "response_end", "tool_call", "tool_start"),
    *("tool_output", "tool_end", "client_tool_request", "server_request"),
    *("server_request_resolved", "raw_agent_event", "utility_command_started"),
    *("utility_command_resized", "utility_command_output", "utility_command_exited"),
    *("utility_file_search_results", "utility_file_read_result", "utility_file_watch_started"),
    *("utility_file_watch_event", "utility_file_watch_stopped"),
}


@Controller.check("maestro.concurrency.utilities", _TRANSPORT, script=(_SLOW,))
async def utilities(controller: Controller) -> None:
    """Messages are served while a prompt runs: a command ends before the prompt does."""
    controller.offers("utility_operations", "command_exec")
    await controller.say("prompt", content="go")
    await controller.until("response_chunk")
    await controller.say("utility_command_start", command_id="u", command="echo hi")
    await controller.until("utility_command_exited", command_id="u", success=True)
    expect(not controller.of("response_end"), "the prompt ended before")
    await controller.say("interrupt")
    await controller.until("response_end")


@Controller.check("maestro.eof.commands", _TRANSPORT)
async def commands(controller: Controller) -> None:
    """The end of input ends the process with 0 although a command runs."""
    controller.offers("utility_operations", "command_exec")
    await controller.say("utility_command_start", command_id="u", command="sleep 60")
    await controller.until("utility_command_started")
    equal(await leave(controller.subject), 0, "the exit code")


@Controller.check(
    "maestro.stdout.only_messages", _TRANSPORT, script=((run("echo hi"),), (Say(FINAL),))
)
async def only_messages(controller: Controller) -> None:
    """Standard output holds nothing but the protocol's messages, one JSON object a line."""
    await controller.say("init", approval_mode="auto")
    await controller.prompt()
    await controller.subject.write(GARBAGE + b"\n")
    await controller.refused()
    await leave(controller.subject)
    only_objects(controller.subject)
    kinds = {str(one.get("type")) for one in controller.subject.heard}
    expect(kinds <= _KINDS, f"no messages of the protocol: {sorted(kinds - _KINDS)}")
