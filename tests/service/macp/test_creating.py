"""`POST /runs` on a real service, and sessions that real agents open on a real runtime."""

from tests.service.macp.describing import DECISION, DescribedPlane, descriptor


async def test_a_described_run_waits_for_its_session_and_becomes_it(
    described: DescribedPlane,
) -> None:
    made = await described.create()
    run_id, session_id = made["runId"], made["sessionId"]
    assert made["status"] == "queued"
    queued = await described.get(f"/runs/{run_id}")
    assert (queued["status"], queued["runtimeSessionId"]) == ("queued", session_id)
    assert (queued["runtimeKind"], queued["traceId"]) == ("embedded", made["traceId"])
    assert await described.types(run_id) == ["run.created"]

    await described.open(session_id)
    running = await described.until(run_id, "running")
    assert running["startedAt"] >= queued["createdAt"]
    await described.decide(session_id)
    record = await described.until(run_id, "completed")
    assert record["metadata"]["finalAction"] == "decision.selected"
    types = await described.types(run_id)
    assert types[:6] == [
        "run.created",
        "run.started",
        "session.bound",
        "participant.seen",
        "participant.seen",
        "session.state.changed",
    ]
    assert types[-2:] == ["session.state.changed", "run.completed"]
    bound = (await described.get(f"/runs/{run_id}/events?type=session.bound"))["data"][0]["data"]
    assert (bound["sessionId"], bound["modeName"]) == (session_id, DECISION)
    assert bound["initiator"] == "lead"


async def test_d12_a_repeated_key_answers_with_the_stored_run_and_starts_nothing(
    described: DescribedPlane,
) -> None:
    body = {**descriptor(), "execution": {"idempotencyKey": "once"}}
    first = await described.create(body)
    again = await described.create(body)
    assert again == first
    await described.open(first["sessionId"])
    other = {**descriptor("x", modeName="other"), "execution": {"idempotencyKey": "once"}}
    third = await described.create(other)
    assert third == {**first, "status": "running"}
