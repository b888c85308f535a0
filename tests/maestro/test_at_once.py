"""Many things on one pair of pipes: each goes on while the others do; one word ends them all."""

import os

from tests.agent.stage import Stage, bash, call, end, say
from tests.maestro.asking import answer
from tests.maestro.speaking import Speaker, speaking

DONE = [say("Done."), end()]
COUNTING = "i=0; while read -r line; do i=$((i+1)); echo $line $i; done"


def start(client: Speaker, name: str, command: str = COUNTING, **more: object) -> None:
    client.say("utility_command_start", command_id=name, command=command, allow_stdin=True, **more)


def write(client: Speaker, name: str, text: str, *, eof: bool = False) -> None:
    client.say("utility_command_stdin", command_id=name, content=text, eof=eof)


def output(client: Speaker, name: str) -> str:
    shown = client.of("utility_command_output", command_id=name)
    return "".join(one["content"] for one in shown)


async def until_output(client: Speaker, name: str, text: str) -> None:
    while text not in output(client, name):
        await client.hear()


async def test_a_tool_a_pipe_a_terminal_and_a_watch_take_turns(stage: Stage) -> None:
    """What the run's own tool writes and what the client's commands write come as they are made."""
    fifo = stage.workspace / "fifo"
    os.mkfifo(fifo)
    # Open for both, so that neither opening nor the end of a line's writer is waited for.
    lines = os.open(fifo, os.O_RDWR)
    frames = [[bash("while read -r line; do echo tool $line; done < fifo", "c1")], DONE]
    async with speaking(stage, *frames) as client:
        await client.hello()
        client.say("init", approval_mode="auto")
        client.say("prompt", content="go")
        start(client, "pipe")
        start(client, "pty", "stty -echo; echo ready; " + COUNTING, terminal_mode="pty")
        client.say("utility_file_watch_start", watch_id="w1", debounce_ms=1)
        await until_output(client, "pty", "ready")
        if not client.of("utility_file_watch_started"):
            await client.until("utility_file_watch_started")
        for number in range(3):
            os.write(lines, f"{number}\n".encode())
            await client.until("tool_output", content=f"tool {number}\n")
            for name in ("pipe", "pty"):
                write(client, name, f"{name}{number}\n")
                await until_output(client, name, f"{name}{number} {number + 1}")
            (stage.workspace / f"new{number}").touch()
            await client.until("utility_file_watch_event", relative_path=f"new{number}")
        client.say("cancel")
        await client.until("utility_command_exited", command_id="pipe")
        if not client.of("response_end"):
            await client.until("response_end")
        client.say("init")
        await client.until("status", message="Init received with no changes")
    os.close(lines)
    assert output(client, "pipe") == "pipe0 1\npipe1 2\npipe2 3\n"
    assert output(client, "pty") == "ready\r\npty0 1\r\npty1 2\r\npty2 3\r\n"
    tool = "".join(one["content"] for one in client.of("tool_output"))
    assert tool.startswith("tool 0\ntool 1\ntool 2\n")
    ends = {one["command_id"]: one["reason"] for one in client.of("utility_command_exited")}
    reason = "Cancelled while utility command was still running"
    assert ends == {"pipe": reason, "pty": reason}
    (stopped,) = client.of("utility_file_watch_stopped")
    assert stopped["reason"] == "Cancelled while file watch was still running"
    state = client.conversation.state
    assert (state.active_utility_commands, state.active_file_watches) == ((), ())


async def test_a_prompt_runs_while_commands_stream_and_a_request_waits(stage: Stage) -> None:
    frames = [[call("ask_user", "c1", question="Which?")], DONE]
    names = ("u1", "u2", "u3")
    (stage.workspace / "notes.md").write_text("alpha\n")
    async with speaking(stage, *frames) as client:
        await client.hello("user_input", "approval")
        client.say("prompt", content="go")
        request = await client.until("server_request", request_type="user_input")
        for name in names:
            start(client, name)
        for word in ("a", "b", "c"):
            for name in names:
                write(client, name, f"{name}{word}\n")
        client.say("utility_file_search", search_id="s1", query="nothing like this")
        client.say("utility_file_read", read_id="r1", path="notes.md")
        for name in names:
            write(client, name, "", eof=True)
        while len(client.of("utility_command_exited")) < len(names):
            await client.hear()
        if not client.of("utility_file_search_results"):
            await client.until("utility_file_search_results")
        if not client.of("utility_file_read_result"):
            await client.until("utility_file_read_result")
        assert client.of("response_end") == client.of("server_request_resolved") == []
        answer(client, request)
        await client.until("response_end")
    for name in names:
        assert output(client, name) == f"{name}a 1\n{name}b 2\n{name}c 3\n"
    assert client.of("tool_output")[0]["content"] == "the second"


async def test_an_interrupt_first_settles_what_is_asked_and_then_ends_what_was_started(
    stage: Stage,
) -> None:
    frames = [[call("ask_user", "c1", question="Which?")], DONE, DONE]
    async with speaking(stage, *frames) as client:
        await client.hello("user_input")
        client.say("utility_command_start", command_id="stays", command="sleep 60")
        client.say(
            "utility_command_start", command_id="pty", command="sleep 60", terminal_mode="pty"
        )
        client.say("utility_file_watch_start", watch_id="w1")
        pids = [(await client.until("utility_command_started"))["pid"] for _ in range(2)]
        if not client.of("utility_file_watch_started"):
            await client.until("utility_file_watch_started")
        client.say("prompt", content="go")
        await client.until("server_request")
        client.say("interrupt")
        client.say("init")
        await client.until("status", message="Init received with no changes")
        ended = ("utility_command_exited", "utility_file_watch_stopped")
        kinds = [kind for kind in client.kinds() if kind in (*ended, "server_request_resolved")]
        assert kinds[0] == "server_request_resolved"
        assert sorted(kinds[1:]) == [ended[0], ended[0], ended[1]]
        assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
        if not client.of("response_end"):
            await client.until("response_end")
        await client.prompt("next")
    assert client.of("response_chunk")[-1]["content"] == "Done."
