"""Requests of a shared runtime: answered in either way, cancelled or expired, each told once."""

from contextlib import AbstractAsyncContextManager

import pytest

from batten.contract.errors import Conflict, Refused
from batten.protocols.maestro.vocabulary import REQUEST_TYPES, RequestType
from batten.serve.maestro.runtime import Runtime
from tests.agent.stage import Stage
from tests.maestro.asking import CLASSES, LOOKUP, PLAIN, mcp
from tests.maestro.attending import DONE, Shim, attending, hosting, is_valid, replay
from tests.maestro.schemas import Json

each_class = pytest.mark.parametrize("kind", REQUEST_TYPES)


def asking(
    stage: Stage, kind: str, deadline_ms: int | None = None
) -> AbstractAsyncContextManager[Runtime]:
    """A runtime that will ask once, and wait for as long as is said."""
    asked = CLASSES[kind]
    variable = f"MAESTRO_HEADLESS_{asked.variable}_TIMEOUT_MS"
    return hosting(
        stage,
        [asked.asks],
        DONE,
        flags=mcp() if kind == "mcp_elicitation" else PLAIN,
        env={} if deadline_ms is None else {variable: str(deadline_ms)},
    )


async def asked_of(controller: Shim, kind: str) -> Json:
    """Prompt, and hear the request; it waits then, and is shown."""
    if kind == "client_tool":
        await controller.say("init", client_tools=[LOOKUP])
    await controller.say("init", approval_mode="prompt" if kind == "approval" else "auto")
    await controller.say("prompt", content="go")
    request = await controller.hear("server_request", request_type=kind)
    (waiting,) = is_valid(controller.runtime.state())["state"]["pending_requests"]
    assert (waiting["id"], waiting["kind"]) == (request["request_id"], kind)
    return request


async def resolved(controller: Shim, request: Json) -> Json:
    """The resolution, which comes before the snapshot that shows that nothing waits."""
    before = len(controller.heard)
    told = await controller.hear("server_request_resolved", request_id=request["request_id"])
    assert "snapshot" not in [one["type"] for one in controller.heard[before:]]
    snapshot = await controller.see(pending_requests=[])
    assert snapshot["cursor"] == controller.cursors[-1]
    (said,) = (await replay(controller.runtime)).of("server_request_resolved")
    assert said == told
    return told


@pytest.mark.parametrize(
    ("kind", "is_older"),
    [
        *((kind, False) for kind in REQUEST_TYPES),
        ("approval", True),
        ("client_tool", True),
        ("user_input", True),
    ],
)
async def test_an_answer_is_told_as_a_resolution_and_then_as_what_is_true(
    stage: Stage, kind: RequestType, is_older: bool
) -> None:
    async with asking(stage, kind) as runtime, attending(runtime, kind) as controller:
        request = await asked_of(controller, kind)
        fields = CLASSES[kind].answer
        if not is_older:
            await controller.answer(request, **fields)
        elif kind == "approval":
            await controller.say("tool_response", call_id=request["call_id"], approved=True)
        else:
            done = {"content": fields["content"], "is_error": False}
            await controller.say("client_tool_result", call_id=request["call_id"], **done)
        told = await resolved(controller, request)
        assert (told["resolution"], told["resolved_by"]) == CLASSES[kind].answered
        await controller.hear("response_end")
        outputs = "".join(one["content"] for one in controller.of("tool_output"))
        assert CLASSES[kind].output in outputs


@each_class
async def test_an_interrupt_cancels_it_and_a_late_answer_changes_nothing(
    stage: Stage, kind: RequestType
) -> None:
    async with asking(stage, kind) as runtime, attending(runtime, kind) as controller:
        request = await asked_of(controller, kind)
        await controller.say("interrupt")
        told = await resolved(controller, request)
        assert (told["resolution"], told["resolved_by"]) == ("cancelled", "runtime")
        assert told["reason"] == "Interrupted before request completed"
        with pytest.raises(Refused, match="No pending server request found for request_id"):
            await controller.answer(request, **CLASSES[kind].answer)
        assert len((await replay(runtime)).of("server_request_resolved")) == 1


@each_class
async def test_only_who_has_the_lease_answers_and_only_once(
    stage: Stage, kind: RequestType
) -> None:
    answer = CLASSES[kind].answer
    async with (
        asking(stage, kind) as runtime,
        attending(runtime, kind) as first,
        attending(runtime, role="viewer") as viewer,
    ):
        request = await asked_of(first, kind)
        with pytest.raises(Refused, match="Viewer headless connections cannot send messages"):
            await viewer.answer(request, **answer)
        async with attending(runtime, kind, take_control=True) as second:
            with pytest.raises(Conflict, match="currently held by another connection"):
                await first.answer(request, **answer)
            waiting = is_valid(runtime.state())["state"]["pending_requests"]
            assert [one["id"] for one in waiting] == [request["request_id"]]
            await second.answer(request, **answer)
            with pytest.raises(Refused, match="No pending server request found for request_id"):
                await second.answer(request, **answer)
            told = await resolved(second, request)
            assert (told["resolution"], told["resolved_by"]) == CLASSES[kind].answered
            await viewer.hear("response_end")


@each_class
async def test_a_request_outlasts_who_was_asked_and_somebody_else_answers_it(
    stage: Stage, kind: RequestType
) -> None:
    async with asking(stage, kind) as runtime:
        async with attending(runtime, kind) as first:
            request = await asked_of(first, kind)
            await runtime.disconnect(first.connection_id)
        assert is_valid(runtime.state())["state"]["controller_connection_id"] is None
        async with attending(runtime, kind) as second:
            await second.answer(request, **CLASSES[kind].answer)
            told = await resolved(second, request)
            assert (told["resolution"], told["resolved_by"]) == CLASSES[kind].answered
            await second.hear("response_end")


@pytest.mark.parametrize("kind", ["approval", "client_tool"])
async def test_what_nobody_answers_in_time_is_told_to_everybody(
    stage: Stage, kind: RequestType
) -> None:
    async with (
        asking(stage, kind, deadline_ms=200) as runtime,
        attending(runtime, kind) as controller,
        attending(runtime, role="viewer") as viewer,
    ):
        if kind == "client_tool":
            await controller.say("init", client_tools=[LOOKUP])
        await controller.say("prompt", content="go")
        told = await viewer.hear("server_request_resolved")
        assert (told["resolution"], told["resolved_by"]) == (CLASSES[kind].expired, "policy")
        await viewer.hear("response_end")
        assert is_valid(runtime.state())["state"]["pending_requests"] == []
