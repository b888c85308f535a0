"""Programs that connect to the runtime answer approvals of runs, with `macp-sdk-python`."""

import asyncio
import json
from collections.abc import Generator
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from batten.contract.facts import ApprovalResolved
from batten.journal.contract import RunRow
from tests.control.coordination.panels import act, reviewed, scripted
from tests.control.given import Place
from tests.coordination.published import core, sdk
from tests.serve.grpc.running import Server, running

quorum: Any = import_module("macp.modes.quorum.v1.quorum_pb2")
PATIENCE_S = 60
MEMBERS = ("ann", "ben", "cem")


@contextmanager
def runtime(folder: Path) -> Generator[Server]:
    tokens = [{"token": f"{name}-token", "sender": name} for name in (*MEMBERS, "eve")]
    (folder / "tokens.json").write_text(json.dumps(tokens))
    with running(folder / "home", "--tokens", str(folder / "tokens.json")) as server:
        yield server


def client(server: Server, name: str) -> Any:
    return server.bearer(f"{name}-token", name)


def convened(server: Server, name: str) -> Any:
    """The session in which this member is asked, once there is one."""
    watching = client(server, name)
    with closing(watching):
        for event in sdk.SessionLifecycleWatcher(watching).changes():
            if name in event.session.participants and event.session.initiator == "batten":
                return event.session
    raise AssertionError("the watch has ended")


def asked(server: Server, name: str, session_id: str) -> Any:
    """What the members are asked: the first two messages, as they are streamed to one."""
    with closing(client(server, name)) as member:
        stream = sdk.QuorumSession(member, session_id=session_id).open_stream()
        with closing(stream):
            stream.send_subscribe(session_id)
            start, request = stream.read(timeout=20), stream.read(timeout=20)
    return (
        core.SessionStartPayload.FromString(start.payload),
        quorum.ApprovalRequestPayload.FromString(request.payload),
    )


def ballot(server: Server, name: str, how: str, reason: str = "I looked") -> Any:
    """Take part as any program does: watch, subscribe, read, vote."""
    session_id = convened(server, name).session_id
    start, request = asked(server, name, session_id)
    with closing(client(server, name)) as member:
        session = sdk.QuorumSession(member, session_id=session_id)
        getattr(session, how)(request.request_id, reason=reason)
    return start, request


async def resolutions(at: Place, row: RunRow) -> list[ApprovalResolved]:
    return [fact for fact in await at.facts(row) if isinstance(fact, ApprovalResolved)]


def touching(folder: Path, result: str = "success") -> str:
    return scripted(folder, "worker", [act("bash", result, command="touch made")])


async def test_connected_programs_approve_what_a_parked_run_waits_for(tmp_path: Path) -> None:
    at = reviewed(tmp_path, connected=list(MEMBERS))
    with runtime(tmp_path) as server:
        async with asyncio.timeout(PATIENCE_S), at.working(runs=1):
            row = await at.started(touching(tmp_path))
            start, request = await asyncio.to_thread(ballot, server, "ann", "approve")
            parked = await at.journal.run(row.run_id)
            await asyncio.to_thread(ballot, server, "ben", "approve")
            row = await at.ended(row)
    answers = await resolutions(at, row)
    at.opener.close()
    assert (at.workspace / "made").exists()
    assert parked is not None
    assert (parked.status, parked.worker_id) == ("awaiting_approval", "")
    assert list(start.participants) == list(MEMBERS)
    assert "touch made" in json.loads(start.extensions["batten.approval"])["about"]
    assert b"touch made" in request.details
    assert [(one.decision, one.by) for one in answers] == [("approved", "panel:review")]
    assert answers[0].comment.startswith("quorum.approved by batten: 2 of 3 approve")


async def test_a_quorum_that_cannot_be_reached_declines(tmp_path: Path) -> None:
    at = reviewed(tmp_path, connected=["ann", "ben"])
    with runtime(tmp_path) as server:
        async with asyncio.timeout(PATIENCE_S), at.working():
            row = await at.started(touching(tmp_path, "error"))
            await asyncio.to_thread(ballot, server, "ann", "reject", "not on a Friday")
            row = await at.ended(row)
    answers = await resolutions(at, row)
    at.opener.close()
    assert (row.status, (at.workspace / "made").exists()) == ("completed", False)
    assert [one.decision for one in answers] == ["rejected"]
    assert answers[0].comment.startswith("quorum.rejected by batten: 0 of 2 approve")


async def test_nobody_who_answers_in_time_means_denied(tmp_path: Path) -> None:
    at = reviewed(tmp_path, connected=["ann"], timeout_s=2)
    with runtime(tmp_path):
        async with asyncio.timeout(PATIENCE_S), at.working():
            row = await at.ended(await at.started(touching(tmp_path, "error")))
    [request] = await at.journal.requests(row.run_id)
    at.opener.close()
    assert row.status == "completed"
    # Closed by the runtime, or by the worker, if that was not yet done with parking the run.
    assert (request.decision, request.status) in [("rejected", "answered"), (None, "timed_out")]


async def test_votes_survive_the_kill_of_the_runtime(tmp_path: Path) -> None:
    at = reviewed(tmp_path, connected=["ann", "ben"])
    async with asyncio.timeout(PATIENCE_S), at.working():
        with runtime(tmp_path) as server:
            row = await at.started(touching(tmp_path))
            await asyncio.to_thread(ballot, server, "ann", "approve")
            server.kill()
        with runtime(tmp_path) as server:
            await asyncio.to_thread(ballot, server, "ben", "approve")
            row = await at.ended(row)
    answers = await resolutions(at, row)
    at.opener.close()
    assert (at.workspace / "made").exists()
    assert [one.decision for one in answers] == ["approved"]


async def test_a_runtime_that_takes_any_name_is_no_judge(tmp_path: Path) -> None:
    at = reviewed(tmp_path, connected=["ann"])
    with running(tmp_path / "home"):
        async with asyncio.timeout(PATIENCE_S), at.working():
            row = await at.ended(await at.started(touching(tmp_path, "error")))
    answers = await resolutions(at, row)
    at.opener.close()
    assert [one.decision for one in answers] == ["rejected"]
    assert "give it --tokens" in answers[0].comment


async def test_others_have_no_vote_and_nobody_is_the_chair(tmp_path: Path) -> None:
    at = reviewed(tmp_path, connected=["ann"])

    def refused(server: Server) -> list[str]:
        session_id = convened(server, "ann").session_id
        codes: list[str] = []
        _, request = asked(server, "ann", session_id)
        with closing(client(server, "eve")) as eve:
            try:
                sdk.QuorumSession(eve, session_id=session_id).approve(request.request_id)
            except sdk.MacpAckError as error:
                codes.append(error.failure.code)
        return codes

    with runtime(tmp_path) as server:
        async with asyncio.timeout(PATIENCE_S), at.working():
            row = await at.started(touching(tmp_path))
            codes = await asyncio.to_thread(refused, server)
            await asyncio.to_thread(ballot, server, "ann", "approve")
            await at.ended(row)
    at.opener.close()
    assert codes == ["FORBIDDEN"]
    with running(tmp_path / "another") as open_server, closing(open_server.client("batten")) as one:
        try:
            sdk.QuorumSession(one).start(intent="x", participants=["a"], ttl_ms=1000)
        except sdk.MacpAckError as error:
            codes.append(error.failure.code)
    assert codes == ["FORBIDDEN", "UNAUTHENTICATED"]
