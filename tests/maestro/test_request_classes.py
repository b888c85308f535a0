"""Every class of request: answered, twice, late, by who may not, never, and with nobody there."""

import pytest

from batten.contract.errors import CallerError
from batten.journal.sqlite import SqliteJournal
from batten.redact.redactor import Redactor
from batten.session.requests import resolve
from tests.agent.stage import Stage
from tests.maestro.asking import CLASSES, answer, asked, stored, talking
from tests.maestro.schemas import Json
from tests.maestro.speaking import Speaker

each_class = pytest.mark.parametrize("kind", CLASSES)


def resolution(client: Speaker, request: Json) -> tuple[str, str]:
    """How a request was resolved, the one time that it was; and what else is then true."""
    (resolved,) = client.of("server_request_resolved")
    same = ("request_id", "request_type", "call_id", "started_at_ms")
    assert {key: resolved[key] for key in same} == {key: request[key] for key in same}
    assert resolved["resolved_at_ms"] >= resolved["started_at_ms"]
    assert client.of("server_request") == [request]
    assert client.conversation.state.pending_requests == ()
    return resolved["resolution"], resolved["resolved_by"]


def outputs(client: Speaker) -> str:
    return "".join(one["content"] for one in client.of("tool_output"))


@each_class
async def test_an_answer_resolves_it_once_and_the_run_goes_on(stage: Stage, kind: str) -> None:
    async with talking(stage, kind) as client:
        request = await asked(client, kind)
        answer(client, request)
        await client.until("response_end")
    assert resolution(client, request) == CLASSES[kind].answered
    assert outputs(client) == CLASSES[kind].output
    assert [one["success"] for one in client.of("tool_end")] == [kind != "tool_retry"]
    assert client.of("response_chunk")[-1]["content"] == "Done."
    assert len(await stored(stage)) == 1


@each_class
async def test_of_two_answers_the_first_counts_and_the_second_is_told_so(
    stage: Stage, kind: str
) -> None:
    async with talking(stage, kind) as client:
        request = await asked(client, kind)
        answer(client, request)
        answer(client, request, CLASSES[kind].other)
        gone = CLASSES[kind].not_pending + request["request_id"]
        assert (await client.until("error", message=gone))["fatal"] is False
        if not client.of("response_end"):
            await client.until("response_end")
        answer(client, request)  # and long after
        await client.until("error", message=gone)
    assert resolution(client, request) == CLASSES[kind].answered
    assert outputs(client) == CLASSES[kind].output  # of the first answer
    assert len(await stored(stage)) == 1


@each_class
async def test_an_answer_after_the_deadline_changes_nothing(stage: Stage, kind: str) -> None:
    async with talking(stage, kind, deadline_ms=200) as client:
        request = await asked(client, kind)
        await client.until("server_request_resolved")
        answer(client, request)
        gone = CLASSES[kind].not_pending + request["request_id"]
        await client.until("error", message=gone)
        if not client.of("response_end"):
            await client.until("response_end")
    assert resolution(client, request) == (CLASSES[kind].expired, "policy")
    assert len(await stored(stage)) == 1


@each_class
async def test_what_nobody_answers_ends_with_its_deadline(stage: Stage, kind: str) -> None:
    async with talking(stage, kind, deadline_ms=200) as client:
        request = await asked(client, kind)
        await client.until("response_end")
        client.say("init")
        await client.until("status", message="Init received with no changes")
    assert resolution(client, request) == (CLASSES[kind].expired, "policy")
    reason = client.of("server_request_resolved")[0]["reason"]
    assert reason.endswith("timed out")
    if kind in ("client_tool", "user_input"):  # the model is told the same
        assert client.of("tool_output")[0]["content"] == reason
    said = [one["content"] for one in client.of("response_chunk")]
    assert said == (["Done."] if CLASSES[kind].goes_on else [])
    assert len(await stored(stage)) == 1


@each_class
async def test_who_may_not_answer_is_refused_and_the_request_waits_on(
    stage: Stage, kind: str
) -> None:
    """Another role, through the journal; another class, and a viewer's answer, on the wire."""
    async with talking(stage, kind) as client:
        request = await asked(client, kind)
        journal = SqliteJournal.open(stage.home)
        with pytest.raises(CallerError, match="may not answer"):
            await resolve(journal, Redactor(), request["request_id"], granted=True, by="viewer")
        journal.close()
        other = next(one for one in CLASSES if one not in (kind, "tool_retry"))
        client.say("server_request_response", request_id=request["request_id"], request_type=other)
        gone = CLASSES[other].not_pending + request["request_id"]
        await client.until("error", message=gone)
        client.say("hello", role="viewer")
        await client.until("error", message="headless connection role cannot change after hello")
        assert client.of("server_request_resolved") == []
        answer(client, request)
        await client.until("response_end")
    assert resolution(client, request) == CLASSES[kind].answered
    assert len(await stored(stage)) == 1


@each_class
async def test_a_client_that_says_no_more_leaves_nothing_waiting(stage: Stage, kind: str) -> None:
    async with talking(stage, kind) as client:
        request = await asked(client, kind)
        client.hang_up()
        assert await client.rest() == 0
    assert resolution(client, request) == ("cancelled", "runtime")
    reason = client.of("server_request_resolved")[0]["reason"]
    assert reason == "Client closed its side before request completed"
    assert client.kinds()[-1] == "response_end"
    assert len(await stored(stage)) == 1


@each_class
async def test_a_client_that_hears_no_more_leaves_nothing_waiting(stage: Stage, kind: str) -> None:
    async with talking(stage, kind) as client:
        await asked(client, kind)
        client.stop_listening()
        assert await client.gone() != 0
    (resolved,) = await stored(stage)
    assert resolved.by == "runtime"
    journal = stage.journal()
    (run,) = await journal.runs()
    assert (run.outcome, [one.status for one in await journal.requests(run.run_id)]) == (
        "cancelled",
        ["cancelled"],
    )
    journal.close()


@each_class
async def test_an_interrupt_cancels_what_waits_and_then_ends_the_response(
    stage: Stage, kind: str
) -> None:
    async with talking(stage, kind) as client:
        request = await asked(client, kind)
        client.say("interrupt")
        await client.until("response_end")
        client.say("init")
        await client.until("status", message="Init received with no changes")
    assert resolution(client, request) == ("cancelled", "runtime")
    reason = client.of("server_request_resolved")[0]["reason"]
    assert reason == "Interrupted before request completed"
    (ended,) = client.of("tool_end")
    assert (ended["call_id"], ended["success"]) == (request["call_id"], False)
    assert client.of("response_end")[0]["tools_summary"]["calls_failed"] == 1
    assert client.of("error") == []
    assert len(await stored(stage)) == 1


@each_class
async def test_a_class_that_was_not_negotiated_is_decided_without_a_request(
    stage: Stage, kind: str
) -> None:
    async with talking(stage, kind) as client:
        await client.hello()
        client.say("init", approval_mode="fail" if kind == "approval" else "auto")
        await client.prompt()
    assert client.of("server_request") == client.of("server_request_resolved") == []
    assert client.of("client_tool_request") == []
    declined = kind == "mcp_elicitation"  # which is an answer, and no failure of the call
    assert [one["success"] for one in client.of("tool_end")] == [declined]
    assert len(client.of("response_end")) == 1
