"""What sharing a session costs nobody: slow readers, vanished controllers, takeovers, endings."""

import asyncio
import gc
import os
from contextlib import aclosing

import pytest

from batten.contract.errors import CallerError, Conflict, NotFound, NotReady, PeerError, Refused
from batten.protocols.maestro.hosted import (
    AskedCapabilities,
    ConnectAsk,
    MessageEnvelope,
    ResetEnvelope,
    SnapshotEnvelope,
    SubscribeAsk,
)
from batten.protocols.maestro.outgoing import ResponseEnd
from batten.protocols.maestro.roster import Timings
from batten.serve.maestro.sharing import Sharing, sharing_of
from tests.agent.stage import Stage, bash, say
from tests.maestro.attending import (
    DONE,
    PATIENCE_S,
    Shim,
    attending,
    hosting,
    is_valid,
    join,
    looking_on,
    prepared,
    replay,
)

IDLE = {
    "MAESTRO_HEADLESS_CONNECTION_IDLE_MS": "50",
    "MAESTRO_HEADLESS_SUBSCRIPTION_IDLE_MS": "50",
}


WORDS = [say(f"word {number} ") for number in range(2000)]
"""Thousands of chunks against mailboxes of 128: the run waits for nobody."""


async def test_who_reads_at_once_misses_nothing(stage: Stage) -> None:
    async with (
        hosting(stage, [*WORDS, *DONE]) as runtime,
        attending(runtime) as controller,
        looking_on(runtime) as viewer,
    ):
        reading = asyncio.ensure_future(viewer.hear("response_end"))
        said = await controller.prompt()
        await reading
        text = "".join(one["content"] for one in said if one["type"] == "response_chunk")
        assert text == "".join(f"word {number} " for number in range(2000)) + "Done."
        assert [one for one in controller.heard if one["type"] == "reset"] == []
        assert "".join(one["content"] for one in viewer.of("response_chunk")) == text


async def test_who_does_not_read_is_told_what_is_true(stage: Stage) -> None:
    async with hosting(stage, [*WORDS, *DONE]) as runtime, attending(runtime) as controller:
        late = [await join(runtime, role="viewer") for _ in range(50)]
        await controller.say("prompt", content="go")
        await _answered(controller)
        for one in late:
            async with aclosing(runtime.attach(one.subscription_id)) as stream:
                first = await anext(stream)
                assert isinstance(first, ResetEnvelope)
                assert (first.reason, first.snapshot.cursor) == ("lagged", runtime.state().cursor)
                await controller.say("init")
                following = await anext(stream)
                assert isinstance(following, MessageEnvelope)
                assert following.cursor == runtime.state().cursor
        old = await replay(runtime, cursor=3)
        assert (old.heard[0]["type"], old.heard[0]["reason"]) == ("reset", "replay_gap")


async def _answered(controller: Shim) -> None:
    """Read to the end of a response; of one who reads too slowly, a reset takes its place."""
    while True:
        sent = await controller.read()
        if sent.get("message", {}).get("type") == "response_end":
            return
        if sent["type"] == "reset" and not sent["snapshot"]["state"]["is_responding"]:
            return


async def test_what_is_kept_is_bounded_however_much_is_said(stage: Stage) -> None:
    env = {"MAESTRO_HEADLESS_RUNTIME_EVENT_BUFFER": "16", "MAESTRO_HEADLESS_SUBSCRIBER_QUEUE": "4"}
    words = [say("y" * 1000) for _ in range(300)]
    async with hosting(stage, [*words, *DONE], env=env) as runtime:
        deaf = [await join(runtime, role="viewer") for _ in range(100)]
        async with looking_on(runtime) as viewer:
            await runtime.message({"type": "prompt", "content": "go"})
            while runtime.state().state.is_responding:
                await viewer.read()
        gc.collect()
        kept = [one for one in gc.get_objects() if type(one) is MessageEnvelope]
        assert 16 <= len(kept) < 2 * len(deaf)  # the ring; mailboxes that were full are empty


async def test_opt_outs_and_raw_events_are_each_subscriptions_own(stage: Stage) -> None:
    async with (
        hosting(stage, [bash("echo one", "c1")], DONE) as runtime,
        attending(runtime, raw=True) as controller,
        attending(runtime, role="viewer", opt_out_notifications=("status",)) as spared,
        looking_on(runtime, 0, opt_out=("connection_info",)) as reader,
    ):
        await controller.say("hello", capabilities={"raw_agent_events": True})
        await controller.say("init", approval_mode="auto")
        await controller.say("prompt", content="go")
        for one in (controller, spared, reader):
            await one.hear("response_end")
        assert controller.of("raw_agent_event")
        assert spared.of("raw_agent_event") == reader.of("raw_agent_event") == []
        assert [len(one.of("status")) for one in (controller, spared, reader)] == [2, 0, 2]
        assert [bool(one.of("connection_info")) for one in (controller, spared, reader)] == [
            True,
            True,
            False,
        ]
        assert is_valid(runtime.state())["state"]["last_status"] == "Completed 1 tool call"


async def test_who_is_not_heard_of_is_gone_with_its_lease_and_what_it_started(
    stage: Stage,
) -> None:
    frames = [[bash("echo ran", "c1")], DONE]
    clock = [1000.0]
    async with (
        hosting(stage, *frames, env=IDLE, now=lambda: clock[0]) as runtime,
        looking_on(runtime) as viewer,
    ):
        gone = await join(runtime, "approval")
        start = {"type": "utility_command_start", "command_id": "u1", "command": "sleep 600"}
        await runtime.message(start, connection_id=gone.connection_id)
        await runtime.message({"type": "prompt", "content": "go"}, connection_id=gone.connection_id)
        request = await viewer.hear("server_request")
        assert not viewer.of("utility_command_exited")
        clock[0] += 60  # and nobody heard of it
        exited = await viewer.hear("utility_command_exited", command_id="u1")
        assert exited["reason"].startswith("Owning connection closed")
        await viewer.see(controller_connection_id=None)
        with pytest.raises(NotFound, match="Headless connection not found"):
            runtime.heartbeat(gone.connection_id)
        (waiting,) = is_valid(runtime.state())["state"]["pending_approvals"]
        assert waiting["request_id"] == request["request_id"]  # another may answer it
        async with attending(runtime, "approval") as another:  # attached, and so not missed
            await another.answer(request, approved=True)
            await another.hear("response_end")
            assert another.of("tool_end", success=True)


async def test_a_controller_that_vanishes_keeps_neither_its_run_nor_others_waiting(
    stage: Stage,
) -> None:
    frames = [[bash("read -r line < fifo; echo $line", "c1")], DONE]
    os.mkfifo(stage.workspace / "fifo")
    lines = os.open(stage.workspace / "fifo", os.O_RDWR)
    async with hosting(stage, *frames) as runtime, looking_on(runtime) as viewer:
        async with attending(runtime) as controller:
            await controller.say("init", approval_mode="auto")
            await controller.say("prompt", content="go")
            await viewer.hear("tool_start")
            await runtime.disconnect(connection_id=controller.connection_id)
            await controller.rest()  # its stream ends
        os.write(lines, b"gone\n")
        await viewer.hear("tool_output", content="gone\n")
        await viewer.hear("response_end")
        state = is_valid(runtime.state())["state"]
        assert (state["controller_connection_id"], state["is_responding"]) == (None, False)
    os.close(lines)


async def test_a_takeover_while_a_request_waits_moves_the_answer_too(stage: Stage) -> None:
    frames = [[bash("echo ran", "c1")], DONE]
    async with (
        hosting(stage, *frames) as runtime,
        attending(runtime, "approval") as first,
    ):
        await first.say("prompt", content="go")
        request = await first.hear("server_request")
        async with attending(runtime, "approval", take_control=True) as second:
            (waiting,) = is_valid(runtime.state())["state"]["pending_approvals"]
            assert waiting["call_id"] == "c1"
            with pytest.raises(Conflict, match="currently held by another connection"):
                await first.answer(request, approved=False)
            await second.answer(request, approved=True)
            await second.hear("response_end")
        assert len((await replay(runtime)).of("server_request_resolved")) == 1
        await first.hear("response_end")  # it still looks on


async def test_of_two_answers_at_once_one_counts(stage: Stage) -> None:
    frames = [[bash("echo ran", "c1")], DONE]
    async with hosting(stage, *frames) as runtime, attending(runtime, "approval") as controller:
        await controller.say("prompt", content="go")
        request = await controller.hear("server_request")
        async with asyncio.timeout(PATIENCE_S):
            results = await asyncio.gather(
                *(controller.answer(request, approved=True) for _ in range(10)),
                return_exceptions=True,
            )
        assert [one for one in results if one is None] == [None]
        await controller.hear("response_end")
        assert len((await replay(runtime)).of("server_request_resolved")) == 1


async def test_of_many_prompts_at_once_one_is_taken(stage: Stage) -> None:
    frames = [[bash("echo ran", "c1")], DONE]
    async with hosting(stage, *frames) as runtime, attending(runtime, "approval") as controller:
        async with asyncio.timeout(PATIENCE_S):
            results = await asyncio.gather(
                *(controller.say("prompt", content=str(number)) for number in range(10)),
                return_exceptions=True,
            )
        assert [one for one in results if one is None] == [None]
        await controller.answer(await controller.hear("server_request"), approved=True)
        await controller.hear("response_end")
        await controller.prompt("another")


async def test_what_has_begun_is_carried_out_whoever_stops_waiting_for_it(stage: Stage) -> None:
    prepared(stage)
    frames = [[bash("echo ran", "c1")], DONE, DONE]
    async with hosting(stage, *frames) as runtime, attending(runtime, "approval") as controller:
        prompt = {"content": "go", "attachments": ["notes.md"]}
        waiting = asyncio.ensure_future(controller.say("prompt", **prompt))
        await asyncio.sleep(0)
        waiting.cancel()
        request = await controller.hear("server_request")
        answering = asyncio.ensure_future(controller.answer(request, approved=True))
        await asyncio.sleep(0)
        answering.cancel()
        await controller.see(pending_approvals=[])
        ended = await asyncio.gather(waiting, answering, return_exceptions=True)
        assert [type(one) for one in ended] == [asyncio.CancelledError] * 2
        await controller.hear("response_end")
        await controller.prompt("another")


async def test_a_drain_in_the_midst_of_everything_ends_all_of_it(stage: Stage) -> None:
    """A request that waits, a command, a watch, deaf viewers, prompts on their way."""
    frames = [[bash("echo ran", "c1")], DONE]
    async with hosting(stage, *frames) as runtime, attending(runtime, "approval") as controller:
        deaf = [await join(runtime, role="viewer") for _ in range(20)]
        await controller.say("utility_command_start", command_id="u1", command="yes")
        await controller.say("utility_file_watch_start", watch_id="w1")
        await controller.say("prompt", content="go")
        async with looking_on(runtime) as viewer:
            await viewer.see(is_responding=True)
            async with asyncio.timeout(PATIENCE_S):
                drained, again, *refused = await asyncio.gather(
                    runtime.drain(),
                    runtime.drain(),
                    *(controller.say("prompt", content="more") for _ in range(5)),
                    *(join(runtime, role="viewer") for _ in range(5)),
                    return_exceptions=True,
                )
        assert not isinstance(drained, BaseException)
        assert not isinstance(again, BaseException)
        # Over HTTP one may be on its way when the session has been closed.
        assert {type(one) for one in refused} <= {NotReady, Refused}
        state = is_valid(runtime.state())["state"]
        assert state["active_utility_commands"] == state["active_file_watches"] == []
        assert (state["pending_requests"], state["is_responding"]) == ([], False)
        for one in deaf:
            async with aclosing(runtime.attach(one.subscription_id)) as stream:
                await Shim(runtime, stream, one).see(last_status="Drained")
    journal = stage.journal()
    (run,) = await journal.runs()
    assert run.outcome == "cancelled"
    journal.close()


async def test_a_shutdown_ends_streams_and_the_session_is_no_more(stage: Stage) -> None:
    async with (
        hosting(stage, DONE) as runtime,
        attending(runtime) as controller,
        attending(runtime, role="viewer") as viewer,
    ):
        await controller.prompt()
        await controller.say("shutdown")
        await viewer.rest()
        last = viewer.heard[-1]
        assert (last["type"], last["snapshot"]["state"]["is_ready"]) == ("snapshot", False)
        for ask in (
            lambda: runtime.state(),
            lambda: runtime.heartbeat(viewer.connection_id),
            lambda: runtime.attach(cursor=0),
        ):
            with pytest.raises(NotFound, match="Headless session not found"):
                ask()
        with pytest.raises(NotFound, match="Headless session not found"):
            await join(runtime)
        with pytest.raises(NotFound, match="Headless session not found"):
            await controller.say("prompt", content="go")


async def test_a_connection_is_made_first_and_subscribed_later(stage: Stage) -> None:
    async with hosting(stage, DONE) as runtime, looking_on(runtime) as viewer:
        asked = AskedCapabilities(server_requests=("approval",))
        connected = await runtime.connect(ConnectAsk(capabilities=asked))
        assert connected.controller_lease_granted
        assert connected.session_id == runtime.session_id
        await viewer.see(controller_connection_id=connected.connection_id)
        subscribed = await runtime.subscribe(SubscribeAsk())
        assert subscribed.connection_id == connected.connection_id
        again = await runtime.connect(ConnectAsk(connection_id=connected.connection_id))
        assert again.connection_id == connected.connection_id
        with pytest.raises(NotFound, match="Headless connection not found"):
            await runtime.connect(ConnectAsk(connection_id="conn_nobody"))
        with pytest.raises(Conflict, match="already held"):
            await runtime.connect(ConnectAsk())


async def test_a_client_that_reconnects_gets_all_messages_of_its_subscription(stage: Stage) -> None:
    async with hosting(stage, DONE) as runtime, attending(runtime) as broken:
        stream = runtime.attach(broken.subscription_id)
        async with aclosing(stream):
            await broken.rest()  # nobody has noticed yet that its connection is lost
            again = Shim(runtime, stream, broken.subscribed)
            assert [one["type"] for one in await again.prompt()] == [
                *("response_start", "response_chunk", "response_end"),
            ]


@pytest.mark.parametrize("cursor", [-999, 0, 10**6])
async def test_the_first_stream_of_a_subscription_begins_with_it_whatever_its_cursor(
    stage: Stage, cursor: int
) -> None:
    async with hosting(stage, DONE) as runtime:
        subscribed = await runtime.subscribe(SubscribeAsk(role="viewer"))
        before = runtime.state().cursor
        await runtime.subscribe(SubscribeAsk(role="viewer"))
        async with aclosing(runtime.attach(subscribed.subscription_id, cursor=cursor)) as stream:
            async with asyncio.timeout(PATIENCE_S):
                first = await anext(stream)
        assert isinstance(first, SnapshotEnvelope)
        assert first.snapshot.cursor == before + 1


async def test_what_is_no_message_is_refused(stage: Stage) -> None:
    async with hosting(stage, DONE) as runtime:
        with pytest.raises(PeerError, match="Unknown headless command type"):
            await runtime.message({"type": "applaud"})
        with pytest.raises(PeerError, match="content"):
            await runtime.message({"type": "prompt"})
        with pytest.raises(CallerError, match="hello needs a connection"):
            await runtime.message({"type": "hello"})


async def test_leaving_while_a_run_works_ends_it_and_every_stream(stage: Stage) -> None:
    async with hosting(stage, [bash("sleep 600", "c1")], DONE) as runtime:
        subscribed = await join(runtime)
        stream = runtime.attach(subscribed.subscription_id)
        for message in (
            {"type": "init", "approval_mode": "auto"},
            {"type": "prompt", "content": ""},
        ):
            await runtime.message(message, connection_id=subscribed.connection_id)
        async with looking_on(runtime, 0) as viewer:
            await viewer.hear("tool_start")
    async with aclosing(stream):
        last = [envelope async for envelope in stream][-1]  # it ends, and can be read to its end
        assert isinstance(last, MessageEnvelope)
        assert isinstance(last.message, ResponseEnd)
    journal = stage.journal()
    assert [run.outcome for run in await journal.runs()] == ["cancelled"]
    journal.close()


async def test_an_error_of_the_embedder_is_raised_as_it_is(stage: Stage) -> None:
    with pytest.raises(ZeroDivisionError):
        async with hosting(stage, DONE):
            raise ZeroDivisionError
    with pytest.raises(CallerError, match="no scenario"):
        async with hosting(stage, model="scripted/nowhere.json"):
            pass


def test_what_variables_say_is_read_once_and_checked() -> None:
    said = sharing_of(
        {
            "MAESTRO_HEADLESS_CONNECTION_HEARTBEAT_INTERVAL_MS": "1000",
            "MAESTRO_HEADLESS_RUNTIME_EVENT_BUFFER": "16",
        }
    )
    times = said.timings
    assert (times.heartbeat_ms, times.connection_idle_ms, times.sweep_ms) == (1000, 3000, 3000)
    assert (said.ring, said.mailbox) == (16, 128)
    assert sharing_of({}) == Sharing(timings=Timings(sweep_ms=30_000))
    with pytest.raises(CallerError, match="MAESTRO_HEADLESS_SUBSCRIBER_QUEUE is 'many'"):
        sharing_of({"MAESTRO_HEADLESS_SUBSCRIBER_QUEUE": "many"})
