"""A coordination session is a run: durable before its answer, and a fold of its facts."""

import asyncio
import os
import subprocess
import sys
from base64 import b64decode, b64encode
from contextlib import aclosing
from operator import methodcaller
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from batten.contract import facts
from batten.contract.envelope import decode, decode_fact
from batten.control.coordination import store
from batten.control.coordination.answers import Answer
from batten.control.coordination.runtime import Runtime
from batten.coordination.engine import Accepted
from batten.coordination.envelope import Message
from batten.coordination.payloads import SIGNAL, write
from batten.coordination.policy.policy import PolicyDescriptor
from batten.coordination.rejection import Rejection
from batten.journal.sqlite import SqliteJournal
from batten.protocols.macp.emitting import NormaliserState
from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.normaliser import normalise
from tests.control.coordination.given import SECRET, Clock, open_runtime
from tests.control.views.sessions import DECISION, play
from tests.coordination.given import SESSION_ID, commitment, say, start_message
from tests.coordination.scripts import (
    check_answer,
    each_script,
    load,
    messages,
    policy_of,
)
from tests.coordination.scripts import start_message as script_start

OTHER_ID = "0190b2f0-0000-7000-8000-0000000000ff"


async def code_of(runtime: Runtime, message: Message) -> str:
    """Why the runtime refuses a message; empty if it takes it."""
    try:
        await runtime.send(message)
    except Rejection as rejection:
        return rejection.macp_code
    return ""


async def facts_of(runtime: Runtime, session_id: str = SESSION_ID) -> list[facts.Fact]:
    run_id = await runtime.run_of(session_id)
    assert run_id is not None
    return [decode_fact(stored.body) for stored in await runtime.journal.read(run_id, limit=1000)]


async def transcript(runtime: Runtime, count: int, after: int = 0) -> list[Accepted]:
    """That many messages of the session, as a follower gets them."""
    run_id = await runtime.run_of(SESSION_ID)
    assert run_id is not None
    found: list[Accepted] = []
    pages = store.follow(runtime.keeping, run_id, after_ordinal=after)
    async with asyncio.timeout(10), aclosing(pages):
        async for page in pages:
            found += page
            if len(found) >= count:
                break
    return found


@each_script
async def test_replay_from_the_journal_gives_the_same_session(tmp_path: Path, path: Path) -> None:
    script = load(path)
    async with open_runtime(tmp_path) as runtime:
        policy = policy_of(script)
        if policy is not None:
            runtime.registries.change_policies(methodcaller("register", policy))
        await runtime.send(script_start(script))
        for message, expected in messages(script):
            check_answer(expected, await code_of(runtime, message))
        session = await runtime.find(SESSION_ID)
        run_id = await runtime.run_of(SESSION_ID)
    assert session is not None
    assert run_id is not None
    assert session.state == script["expected_final_state"].upper()
    async with open_runtime(tmp_path) as again:
        stored = await store.load(again.keeping, run_id)
        assert stored is not None
        assert await again.find(SESSION_ID) == stored.engine.session
        assert replace(stored.engine.session, mode=session.mode) == session
        for message, _ in messages(script):
            if stored.engine.is_duplicate(message):
                assert (await again.send(message)).duplicate
        assert await again.journal.verify() == []


async def test_message_is_a_fact_before_it_is_answered(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        answer = await runtime.send(start_message())
        assert (answer.state, answer.duplicate) == ("OPEN", False)
        await runtime.send(say("ann", "Proposal", proposal_id="p1", option="merge"))
        beside = SqliteJournal.open(tmp_path, read_only=True)
        try:
            run_id = await runtime.run_of(SESSION_ID)
            assert run_id is not None
            types = [stored.type for stored in await beside.read(run_id)]
        finally:
            beside.close()
    assert types == [
        "run.queued",
        "run.started",
        "user.message",
        "macp.session_bound",
        "macp.message_accepted",
        "macp.message_accepted",
    ]


async def test_commitment_ends_the_run_with_its_judgement_before_it(tmp_path: Path) -> None:
    rules = '{"voting": {"algorithm": "majority"}}'
    policy = PolicyDescriptor(policy_id="policy.vote", rules=rules, schema_version=3)
    async with open_runtime(tmp_path) as runtime:
        runtime.registries.change_policies(methodcaller("register", policy))
        await runtime.send(start_message(policy_version="policy.vote"))
        await runtime.send(say("ann", "Proposal", proposal_id="p1", option="merge"))
        assert await code_of(runtime, commitment()) == "POLICY_DENIED"
        await runtime.send(say("ben", "Vote", proposal_id="p1", vote="APPROVE"))
        assert (await runtime.send(commitment())).state == "RESOLVED"
        assert await code_of(runtime, say("ann", "Vote", proposal_id="p1", vote="REJECT")) == (
            "SESSION_NOT_OPEN"
        )
        found = await facts_of(runtime)
        row = await runtime.journal.run(await runtime.run_of(SESSION_ID) or "")
    assert [fact.type for fact in found[6:]] == [
        "macp.commitment_evaluated",
        "macp.message_accepted",
        "macp.commitment_evaluated",
        "macp.message_accepted",
        "run.finished",
    ]
    first, second = found[6], found[8]
    assert isinstance(first, facts.MacpCommitmentEvaluated)
    assert isinstance(second, facts.MacpCommitmentEvaluated)
    assert [(one.decision, [denial.code for denial in one.denials]) for one in (first, second)] == [
        ("deny", ["no_votes"]),
        ("allow", []),
    ]
    assert row is not None
    assert (row.kind, row.status, row.prompt) == ("coordination", "completed", "decide")


async def test_messages_sent_together_are_taken_in_one_order(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        await runtime.send(start_message())
        await runtime.send(say("ann", "Proposal", proposal_id="p1", option="merge"))
        votes = [say(who, "Vote", proposal_id="p1", vote="APPROVE") for who in ("ann", "ben")]
        answers = await asyncio.gather(
            *(runtime.send(vote) for vote in [*votes, *votes]), runtime.send(commitment())
        )
        assert [answer.duplicate for answer in answers] == [False, False, True, True, False]
        seen = await transcript(runtime, 5)
    assert [(one.ordinal, one.message.sender) for one in seen] == [
        (1, "lead"),
        (2, "ann"),
        (3, "ann"),
        (4, "ben"),
        (5, "lead"),
    ]


async def test_message_is_stored_and_told_though_its_sender_leaves(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        await runtime.send(start_message())
        await runtime.send(say("ann", "Proposal", proposal_id="p1", option="merge"))
        watching = runtime.lifecycle.subscribe()
        sending = asyncio.create_task(runtime.send(commitment()))
        await asyncio.sleep(0)
        sending.cancel()
        async with asyncio.timeout(10), aclosing(watching.values()) as values:
            heard = await anext(values)
        assert (heard.kind, heard.session.state) == ("RESOLVED", "RESOLVED")
        assert (await facts_of(runtime))[-1].type == "run.finished"
        assert sending.cancelled()
        assert (await runtime.send(commitment())).duplicate


async def test_second_start_is_a_duplicate_or_a_conflict_also_at_the_same_time(
    tmp_path: Path,
) -> None:
    async with open_runtime(tmp_path) as runtime:
        other = replace(start_message(), message_id="other")
        first, again, conflict = await asyncio.gather(
            runtime.send(start_message()),
            runtime.send(start_message()),
            runtime.send(other),
            return_exceptions=True,
        )
    assert isinstance(first, Answer)
    assert isinstance(again, Answer)
    assert (first.duplicate, again.duplicate) == (False, True)
    assert isinstance(conflict, Rejection)
    assert conflict.macp_code == "SESSION_ALREADY_EXISTS"


async def test_late_observer_gets_the_whole_transcript_after_end_and_restart(
    tmp_path: Path,
) -> None:
    sent = [
        start_message(),
        say("ann", "Proposal", proposal_id="p1", option="merge"),
        say("ben", "Vote", proposal_id="p1", vote="APPROVE"),
        commitment(),
    ]
    async with open_runtime(tmp_path) as runtime:
        for message in sent:
            await runtime.send(message)
    async with open_runtime(tmp_path) as again:
        seen = await transcript(again, 4)
        assert [one.message for one in seen] == sent
        assert [one.ordinal for one in await transcript(again, 2, after=2)] == [3, 4]
        session = await again.find(SESSION_ID)
    assert session is not None
    assert session.resolution == sent[-1].payload


async def test_session_whose_beginning_was_pruned_is_gone_but_its_id_is_not_free(
    tmp_path: Path,
) -> None:
    async with open_runtime(tmp_path) as runtime:
        run_id = await play(runtime, DECISION)
        assert await runtime.journal.prune(run_id, before=8, reason="age") is not None
        await assert_gone(runtime)
    async with open_runtime(tmp_path) as runtime:
        await assert_gone(runtime)


async def assert_gone(runtime: Runtime) -> None:
    assert await runtime.find(SESSION_ID) is None
    assert await code_of(runtime, say("ann", "Vote", id_="v", vote="REJECT")) == "SESSION_NOT_FOUND"
    again = replace(start_message(), message_id="again")
    assert await code_of(runtime, again) == "SESSION_ALREADY_EXISTS"


async def test_unfinished_session_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        await runtime.send(start_message())
        await runtime.send(say("ann", "Proposal", proposal_id="p1", option="merge"))
    async with open_runtime(tmp_path) as again:
        repeated = await again.send(say("ann", "Proposal", proposal_id="p1", option="merge"))
        assert repeated.duplicate
        assert (await again.send(commitment())).state == "RESOLVED"


async def test_time_ends_a_session_by_the_sweep_and_by_the_next_access(tmp_path: Path) -> None:
    clock = Clock()
    async with open_runtime(tmp_path, clock) as runtime:
        await runtime.send(start_message())
        watching = runtime.lifecycle.subscribe()
        clock.ahead_ms = 60_100
        await runtime.sweep()
        async with asyncio.timeout(5), aclosing(watching.values()) as values:
            assert (await anext(values)).kind == "EXPIRED"
        watching.close()
        found = await facts_of(runtime)
    ending = found[-1]
    assert isinstance(ending, facts.RunFailed)
    assert (ending.outcome, ending.code) == ("timeout", "SESSION_EXPIRED")
    clock.ahead_ms = 0
    async with open_runtime(tmp_path / "second", clock) as other:
        await other.send(start_message())
        clock.ahead_ms = 60_100
        proposal = say("ann", "Proposal", proposal_id="p1", option="merge")
        assert await code_of(other, proposal) == "SESSION_NOT_OPEN"
        session = await other.find(SESSION_ID)
    assert session is not None
    assert session.state == "EXPIRED"


async def test_leases_of_all_sessions_are_renewed_and_a_lost_one_is_forgotten(
    tmp_path: Path,
) -> None:
    async with open_runtime(tmp_path) as runtime:
        other_id = "0190b2f0-0000-7000-8000-000000000002"
        await runtime.send(start_message())
        await runtime.send(start_message(session_id=other_id))
        run_id = await runtime.run_of(SESSION_ID) or ""
        before = await runtime.journal.run(run_id)
        lost = await runtime.run_of(other_id) or ""
        lease = runtime._sessions[other_id].lease  # pyright: ignore[reportPrivateUsage]
        assert lease is not None
        await runtime.journal.release(lease)
        await runtime.journal.claim(lost, "worker-elsewhere", 60.0)
        await runtime.renew()
        after = await runtime.journal.run(run_id)
        assert before is not None
        assert after is not None
        assert after.lease_boot_ms >= before.lease_boot_ms
        assert [one.session_id for one in runtime.known()] == [SESSION_ID]
        assert await code_of(runtime, say("ann", "Proposal", proposal_id="p", option="x")) == ""


async def test_suspended_and_resumed_session_replays_with_its_banked_time(tmp_path: Path) -> None:
    clock = Clock()
    async with open_runtime(tmp_path, clock) as runtime:
        await runtime.send(start_message())
        await runtime.suspend(SESSION_ID, "lead", "lunch")
        clock.ahead_ms = 50_000
        await runtime.resume(SESSION_ID, "lead", "back")
        session = await runtime.find(SESSION_ID)
    assert session is not None
    assert session.suspended_ms >= 50_000
    async with open_runtime(tmp_path, clock) as again:
        assert await again.find(SESSION_ID) == session
        assert (await again.cancel(SESSION_ID, "lead", "no use")).state == "CANCELLED"
        ending = (await facts_of(again))[-1]
    assert isinstance(ending, facts.RunCancelled)
    assert (ending.by, ending.reason) == ("lead", "no use")


async def test_operator_cancels_a_session_like_any_run(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        await runtime.send(start_message())
        run_id = await runtime.run_of(SESSION_ID) or ""
        asked = facts.RunCancelRequested(by="operator", reason="out of time")
        await runtime.journal.append(run_id, [asked], fence=None)
        await runtime.heed()
        session = await runtime.find(SESSION_ID)
        ending = (await facts_of(runtime))[-1]
    assert session is not None
    assert session.state == "CANCELLED"
    assert isinstance(ending, facts.RunCancelled)
    assert (ending.by, ending.reason) == ("operator", "out of time")


async def test_secret_in_a_payload_is_sealed_and_comes_back_unchanged(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        await runtime.send(start_message(intent=f"about {SECRET}"))
        told = say("ann", "Proposal", id_="m1", proposal_id="p1", option=f"use {SECRET}")
        await runtime.send(told)
        run_id = await runtime.run_of(SESSION_ID) or ""
        stored = b"".join(one.body for one in await runtime.journal.read(run_id))
        assert (await transcript(runtime, 2))[1].message == told
    assert SECRET.encode() not in stored
    assert b64encode(told.payload)[:-4] not in stored


async def test_secret_in_a_reason_or_in_a_policy_s_description_is_not_stored(
    tmp_path: Path,
) -> None:
    policy = PolicyDescriptor(
        policy_id="policy.own", mode="*", description=f"as {SECRET} says", rules="{}"
    )
    async with open_runtime(tmp_path) as runtime:
        await runtime.send(start_message(policy_version="policy.own"), policy=policy)
        for change in (runtime.suspend, runtime.resume, runtime.cancel):
            await change(SESSION_ID, "lead", f"because of {SECRET}")
        told = await facts_of(runtime)
        start = start_message(configuration_version=SECRET, session_id=OTHER_ID)
        await runtime.send(start)
        proposal = say("ann", "Proposal", proposal_id="p1", option="merge")
        await runtime.send(replace(proposal, session_id=OTHER_ID))
        ending = commitment(commitment_id=SECRET, configuration_version=SECRET)
        await runtime.send(replace(ending, session_id=OTHER_ID, message_id="c1"))
        others = await facts_of(runtime, OTHER_ID)
    assert SECRET not in str(told + others)
    assert isinstance(told[-1], facts.RunCancelled)
    assert told[-1].reason.startswith("because of ")


@pytest.mark.parametrize("text", [f"key {SECRET}", "x" * 70_000])
async def test_model_call_in_a_signal_is_counted_though_its_payload_is_not_shown(
    tmp_path: Path, text: str
) -> None:
    call = {"model": "gpt-4o-mini", "promptTokens": 120, "completionTokens": 45, "prompt": text}
    payload = write(
        SIGNAL,
        {
            "signal_type": "llm.call.completed",
            "data": msgspec.json.encode(call),
            "correlation_session_id": SESSION_ID,
        },
    )
    signal = Message(message_type="Signal", message_id="s1", sender="ann", payload=payload)
    async with open_runtime(tmp_path) as runtime:
        await runtime.send(start_message())
        await runtime.send(signal)
        run_id = await runtime.run_of(SESSION_ID) or ""
        state, events = NormaliserState(), list[CanonicalEvent]()
        for stored in await runtime.journal.read(run_id):
            events += normalise(state, decode(stored.body))
    (event,) = [one for one in events if one.type == "llm.call.completed"]
    told = event.data["decodedPayload"]
    assert (told["model"], told["totalTokens"]) == ("gpt-4o-mini", 165)
    assert SECRET not in str(events)
    (shown,) = [one for one in events if one.type == "signal.emitted"]
    data = shown.data["decodedPayload"]["data"]  # bytes, as in every other signal
    assert b64decode(data).startswith(b'{"model":"gpt-4o-mini"')


async def test_signal_that_is_sent_again_is_noted_once(tmp_path: Path) -> None:
    payload = write(SIGNAL, {"signal_type": "risk", "correlation_session_id": SESSION_ID})
    signal = Message(message_type="Signal", message_id="s1", sender="ann", payload=payload)
    async with open_runtime(tmp_path) as runtime:
        await runtime.send(start_message())
        await asyncio.gather(runtime.send(signal), runtime.send(signal))
        await runtime.send(replace(signal, sender="ben"))  # each agent counts its own messages
    async with open_runtime(tmp_path) as runtime:
        assert await runtime.recover() == 1
        for message_id in ("s1", "s2"):
            await runtime.send(replace(signal, message_id=message_id))
        told = await facts_of(runtime, SESSION_ID)
    noted = [one for one in told if isinstance(one, facts.MacpFrameObserved)]
    assert [(one.sender, one.message_id) for one in noted] == [
        ("ann", "s1"),
        ("ben", "s1"),
        ("ann", "s2"),
    ]


async def test_large_payload_is_an_artifact_and_comes_back_unchanged(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        await runtime.send(start_message())
        data = b"\xff" * 900_000
        told = say("ann", "Proposal", id_="m1", proposal_id="p1", option="x", supporting_data=data)
        await runtime.send(told)
        assert (await transcript(runtime, 2))[1].message == told
        assert await runtime.journal.verify() == []


async def test_session_too_large_for_its_facts_is_refused(tmp_path: Path) -> None:
    crowd = [f"{number}" * 100 for number in range(1000)]
    async with open_runtime(tmp_path) as runtime:
        assert await code_of(runtime, start_message(participants=crowd)) == "PAYLOAD_TOO_LARGE"
        assert await code_of(runtime, start_message()) == ""


async def test_failed_append_is_refused_and_the_session_is_folded_again(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        await runtime.send(start_message())
        run_id = await runtime.run_of(SESSION_ID) or ""
        # A stranger takes the run: our fence is void.
        held = SqliteJournal.open(tmp_path)
        lease = runtime._sessions[SESSION_ID].lease  # pyright: ignore[reportPrivateUsage]
        assert lease is not None
        await held.release(lease)
        await held.claim(run_id, "worker-elsewhere", 60.0)
        held.close()
        proposal = say("ann", "Proposal", proposal_id="p1", option="merge")
        assert await code_of(runtime, proposal) == "INTERNAL_ERROR"
        session = await runtime.find(SESSION_ID)
        assert session is not None
        assert session.ordinal == 1
        assert await code_of(runtime, proposal) == "INTERNAL_ERROR"


def batten(home: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "batten", *arguments],
        env={**os.environ, "BATTEN_HOME": str(home), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout + done.stderr


async def test_commands_show_verify_and_export_it_like_any_run(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with open_runtime(home) as runtime:
        await runtime.send(start_message(intent="Shall we merge?"))
        await runtime.send(say("ann", "Proposal", proposal_id="p1", option="merge"))
        await runtime.send(say("ben", "Vote", proposal_id="p1", vote="APPROVE", reason="fine"))
        await runtime.send(commitment())
        run_id = await runtime.run_of(SESSION_ID) or ""
    shown = batten(home, "show", "last")
    for part in ("Shall we merge?", "ann: Proposal merge", "ben: Vote APPROVE · fine", "finished"):
        assert part in shown
    assert "macp.message_accepted" in batten(home, "events", run_id)
    assert "Shall we merge?" in batten(home, "runs")
    batten(home, "verify")
    bundle = tmp_path / "panel.bundle"
    batten(home, "export", SESSION_ID, "-o", str(bundle))
    other = tmp_path / "other"
    batten(other, "import", str(bundle))
    async with open_runtime(other) as again:
        session = await again.find(SESSION_ID)
    assert session is not None
    assert session.state == "RESOLVED"
