"""Described runs on a real journal: created once, claimed by one runtime, ended in time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from msgspec.structs import replace

from batten.contract.envelope import decode_fact
from batten.contract.errors import CallerError, Conflict, NotReady
from batten.contract.facts import (
    Fact,
    MacpRunArchived,
    MacpSessionBound,
    MacpSuspensionRequested,
    RunCancelled,
    RunCancelRequested,
    RunFailed,
    RunStarted,
)
from batten.control.coordination.records import Keeping
from batten.control.coordination.registries import FILE, Registries
from batten.control.coordination.runtime import Runtime
from batten.control.coordination.store import follow
from batten.control.described.cancelling import Cancelling
from batten.control.described.creation import Asker, DescribedRuns, Made, keyed_run_id
from batten.control.described.overdue import Overdue
from batten.control.described.suspending import change
from batten.coordination.rejection import Rejection
from batten.journal.contract import Journal, RunRow
from batten.protocols.macp.descriptor import RunDescriptor, read_descriptor
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from batten.settings.control_plane import ControlPlaneSettings
from tests.control.coordination.given import open_runtime
from tests.control.given import Place
from tests.coordination.given import SESSION_ID, commitment, say, start_message
from tests.protocols.macp.test_descriptor import given, read

BY = Asker(by="ann")


def embedded(session_id: str = SESSION_ID, key: str = "", **session: Any) -> RunDescriptor:
    body = given(sessionId=session_id, **{"metadata": {}, **session})
    execution = {"idempotencyKey": key} if key else {}
    found: RunDescriptor = read({**body, "runtime": {"kind": "embedded"}, "execution": execution})
    return found


@pytest.fixture
def runs(place: Place) -> DescribedRuns:
    return DescribedRuns(place.tasks, ControlPlaneSettings())


async def facts_of(journal: Journal, run_id: str) -> list[Fact]:
    return [decode_fact(one.body) for one in await journal.read(run_id, limit=1000)]


def home(place: Place) -> Path:
    return Path(place.opener.home)


@pytest.mark.parametrize("metadata", [{}, {"cancelCallback": {"url": "http://h", "bearer": "b"}}])
async def test_a_run_of_a_mode_that_the_runtime_lacks_fails_at_once(
    place: Place, runs: DescribedRuns, metadata: dict[str, Any]
) -> None:
    made = await runs.create(embedded(modeName="ext.poll.v1", metadata=metadata), BY)
    row = await place.journal.run(made.run_id)
    assert row is not None
    assert row.status == "failed"
    *before, described, failed = await facts_of(place.journal, made.run_id)
    assert before[0].type == "run.queued"
    assert described.type == "macp.run_described"
    assert isinstance(failed, RunFailed)
    assert failed.code == "MODE_NOT_SUPPORTED"
    assert "'ext.poll.v1'. Supported: ext.multi_round.v1, macp.mode." in failed.message
    async with open_runtime(home(place)) as runtime:
        with pytest.raises(Rejection, match="is failed: create another"):
            await runtime.send(start_message())
    assert await place.journal.verify() == []


async def test_a_run_of_a_registered_mode_waits(place: Place, runs: DescribedRuns) -> None:
    registries = Registries(str(home(place) / FILE))
    [multi_round] = registries.modes.extension
    poll = replace(multi_round, mode="ext.poll.v1")
    registries.change_modes(lambda now: now.register(poll))
    made = await runs.create(embedded(modeName="ext.poll.v1"), BY)
    row = await place.journal.run(made.run_id)
    assert row is not None
    assert row.status == "queued"


async def test_a_start_claims_the_run_that_waits_for_it(place: Place, runs: DescribedRuns) -> None:
    made = await runs.create(embedded(), BY)
    async with open_runtime(home(place)) as runtime:
        assert await runtime.find(SESSION_ID) is None
        assert (await runtime.send(start_message())).ordinal == 1
        assert await runtime.run_of(SESSION_ID) == made.run_id
        assert (await runtime.send(start_message())).duplicate
        await runtime.send(say("lead", "Proposal", id_="m1", proposal_id="p1", option="ship"))
    types = [fact.type for fact in await facts_of(place.journal, made.run_id)]
    assert types[:6] == [
        "run.queued",
        "macp.run_described",
        "run.started",
        "user.message",
        "macp.session_bound",
        "macp.message_accepted",
    ]
    async with open_runtime(home(place)) as again:  # the first one left without a word
        session = await again.find(SESSION_ID)
        assert session is not None
        assert session.state == "OPEN"
        await again.send(say("ann", "Vote", id_="m2", proposal_id="p1", vote="APPROVE"))
        assert (await again.send(commitment())).state == "RESOLVED"
    assert await place.journal.verify() == []


async def test_what_a_waiting_run_was_given_does_not_hide_its_session(
    place: Place, runs: DescribedRuns
) -> None:
    made = await runs.create(embedded(metadata={"cancellationDelegated": True}), BY)
    for _ in range(20):
        await place.journal.append(made.run_id, [MacpRunArchived(by="ann")], fence=None)
    async with open_runtime(home(place)) as runtime:
        await runtime.send(start_message())
        await runtime.leave(SESSION_ID)  # as if it had been killed
        row = await place.journal.run(made.run_id)
        assert row is not None
        cancelling = Cancelling(place.tasks, runs, ControlPlaneSettings())
        await cancelling.cancel(row, by="ann", reason="enough")
        async with aclosing(follow(runtime.keeping, made.run_id)) as pages:
            [start, cancel] = await anext(pages)
        session = await runtime.find(SESSION_ID)
    assert start.message.message_type == "SessionStart"
    assert (cancel.message.message_type, cancel.state) == ("SessionCancel", "CANCELLED")
    assert session is not None
    assert session.state == "CANCELLED"


async def test_of_starts_at_the_same_time_one_opens_the_session(
    place: Place, runs: DescribedRuns
) -> None:
    made = await runs.create(embedded(), BY)
    async with open_runtime(home(place)) as one, open_runtime(home(place)) as other:
        starts = [
            start_message(sender=sender, participants=("lead", "ann", "ben"))
            for sender in ("lead", "ann", "lead", "ann")
        ]

        async def attempt(runtime: Runtime, number: int) -> str:
            try:
                answer = await runtime.send(starts[number])
                return "duplicate" if answer.duplicate else "opened"
            except Rejection as rejection:
                return rejection.macp_code

        told = await asyncio.gather(*(attempt((one, other)[n % 2], n) for n in range(4)))
    assert told.count("opened") == 1
    assert set(told) <= {"opened", "duplicate", "SESSION_ALREADY_EXISTS"}
    facts = await facts_of(place.journal, made.run_id)
    assert sum(isinstance(fact, MacpSessionBound) for fact in facts) == 1
    assert sum(isinstance(fact, RunStarted) for fact in facts) == 1


async def test_a_start_opens_its_session_although_a_run_is_described_at_the_same_time(
    place: Place, runs: DescribedRuns
) -> None:
    async with open_runtime(home(place)) as runtime:
        for steps in range(12):
            session_id = str(uuid4())
            async with asyncio.TaskGroup() as group:
                start = group.create_task(runtime.send(start_message(session_id=session_id)))
                looking: list[asyncio.Task[object]] = []
                for _ in range(steps):
                    await asyncio.sleep(0)
                    looking.append(group.create_task(runtime.find(session_id)))
                described = group.create_task(_described(runs, session_id))
            assert start.result().state == "OPEN"
            run_id = await runtime.run_of(session_id)
            assert described.result() in ("SESSION_ALREADY_EXISTS", run_id)


async def _described(runs: DescribedRuns, session_id: str) -> str:
    """The run that is described, or why not."""
    try:
        return (await runs.create(embedded(session_id), BY)).run_id
    except Conflict as error:
        return error.code


async def test_a_start_and_the_deadline_never_both_win(place: Place, runs: DescribedRuns) -> None:
    overdue = Overdue(place.journal, timeout_ms=0)
    async with open_runtime(home(place)) as runtime:
        for number in range(12):
            session_id = f"0190b2f0-0000-7000-8000-{number:012x}"
            made = await runs.create(embedded(session_id), BY)

            async def start(session_id: str = session_id) -> bool:
                try:
                    await runtime.send(start_message(session_id=session_id))
                except Rejection:
                    return False
                return True

            opened, _ = await asyncio.gather(start(), overdue.look())
            await overdue.look()
            row = await place.journal.run(made.run_id)
            assert row is not None
            facts = await facts_of(place.journal, made.run_id)
            is_bound = any(isinstance(fact, MacpSessionBound) for fact in facts)
            is_failed = any(isinstance(fact, RunFailed) for fact in facts)
            assert (opened, is_bound) == (not is_failed, not is_failed)
            assert row.status == ("running" if opened else "failed")


async def test_overdue_runs_are_ended_once_and_fresh_ones_wait(
    place: Place, runs: DescribedRuns
) -> None:
    made = [await runs.create(embedded(f"{'a' * 20}{n:04}"), BY) for n in range(5)]
    patient, strict = Overdue(place.journal, 60_000), Overdue(place.journal, 0)
    assert await patient.look() == 0
    ended = await asyncio.gather(*(strict.look() for _ in range(3)))
    assert sum(ended) == 5
    for one in made:
        (ending,) = (await facts_of(place.journal, one.run_id))[2:]
        assert isinstance(ending, RunFailed)
        assert (ending.code, ending.outcome) == ("RUNTIME_TIMEOUT", "timeout")
    assert await place.journal.awaited() == []


async def test_a_clock_that_is_set_ends_no_waiting_run_early_or_late(
    place: Place, runs: DescribedRuns
) -> None:
    await runs.create(embedded(), BY)
    ahead_s, passed_s = 0.0, 0.0
    overdue = Overdue(
        place.journal,
        60_000,
        wall_s=lambda: time.time() + ahead_s,
        steady_s=lambda: passed_s,
    )
    assert await overdue.look() == 0
    ahead_s = 3600.0
    assert await overdue.look() == 0
    ahead_s = -3600.0
    assert await overdue.look() == 0
    passed_s = 61.0
    assert await overdue.look() == 1


async def test_no_worker_claims_a_run_that_waits_for_a_session(
    place: Place, runs: DescribedRuns
) -> None:
    made = await runs.create(embedded(), BY)
    assert await place.journal.queued() == []
    row = await place.journal.run(made.run_id)
    assert row is not None
    assert row.status == "queued"


async def test_a_key_makes_one_run_and_leaves_no_other_session(
    place: Place, runs: DescribedRuns
) -> None:
    body = {**given(metadata={}), "runtime": {"kind": "embedded"}}
    made: list[Made] = await asyncio.gather(*(runs.create(read(body), BY) for _ in range(8)))
    assert {one.run_id for one in made} == {keyed_run_id("unique-key")}
    assert sum(one.is_new for one in made) == 1
    assert len(await place.journal.sessions()) == 1


async def test_a_session_has_one_run_also_after_that_has_ended(
    place: Place, runs: DescribedRuns
) -> None:
    made = await runs.create(embedded(), BY)
    await Overdue(place.journal, 0).look()
    with pytest.raises(Conflict) as refused:
        await runs.create(embedded(), BY)
    assert refused.value.code == "SESSION_ALREADY_EXISTS"
    await place.tasks.delete((await place.journal.runs())[0].task_id or "")
    again = await runs.create(embedded(), BY)
    assert again.run_id != made.run_id


async def test_a_run_of_another_process_is_refused_by_its_key_in_every_spelling(
    place: Place, runs: DescribedRuns
) -> None:
    first = await runs.create(embedded(key="ключ 🔑"), BY)
    other = DescribedRuns(place.tasks, ControlPlaneSettings())
    again = await other.create(embedded("b" * 24, key="ключ 🔑"), BY)
    assert (again.run_id, again.is_new) == (first.run_id, False)
    assert (await runs.create(embedded("b" * 24, key="КЛЮЧ 🔑"), BY)).is_new


async def test_a_descriptor_comes_back_as_it_was_sent(place: Place, runs: DescribedRuns) -> None:
    callback = {"url": "http://initiator/cancel", "bearer": "secret-of-the-callback"}
    metadata = {"cancelCallback": callback, "note": 'a "quoted" word'}
    body = {**given(metadata=metadata), "runtime": {"kind": "embedded"}}
    made = await runs.create(read(body), BY)
    stored = await runs.descriptor(made.run_id)
    body["session"]["sessionId"] = made.session_id
    assert stored == body
    raw = b"".join(one.body for one in await place.journal.read(made.run_id))
    assert b"secret-of-the-callback" not in raw


async def test_an_unknown_kind_makes_nothing(place: Place, runs: DescribedRuns) -> None:
    with pytest.raises(CallerError, match="'java' is not registered"):
        await runs.create(read({**given(), "runtime": {"kind": "java"}}), BY)
    assert await place.journal.sessions() == []


async def test_an_agent_s_run_that_its_key_made_before_leaves_no_second_task(
    place: Place, runs: DescribedRuns
) -> None:
    metadata = {"prompt": "go", "model": place.model([{"kind": "text", "text": "hi"}])}
    body = {**given(metadata=metadata), "runtime": {"kind": "agent"}}
    made = await asyncio.gather(*(runs.create(read(body), BY) for _ in range(4)))
    assert {one.run_id for one in made} == {keyed_run_id("unique-key")}
    assert len(await place.journal.sessions()) == 1
    assert [row.run_id for row in await place.journal.queued()] == [made[0].run_id]


def test_hostile_bytes_are_refused() -> None:
    for body in (b"", b"null", b"[]", b"\xff", b'{"mode":"live\xff"}', b'{"mode":"\\ud800"}'):
        with pytest.raises(CallerError):
            read_descriptor(body)


async def test_operators_suspend_resume_and_cancel_what_a_described_run_became(
    place: Place, runs: DescribedRuns
) -> None:
    made = await runs.create(embedded(), BY)
    async with open_runtime(home(place)) as runtime:
        await runtime.send(start_message())
        states: list[str] = []
        suspend = MacpSuspensionRequested(state="SUSPENDED", by="ann", reason="lunch")
        for asked in (suspend, suspend, replace(suspend, state="OPEN")):
            await place.journal.append(made.run_id, [asked], fence=None)
            await runtime.heed()
            session = await runtime.find(SESSION_ID)
            assert session is not None
            states.append(session.state)
        assert states == ["SUSPENDED", "SUSPENDED", "OPEN"]
        asked_to_end = RunCancelRequested(by="ann", reason="enough")
        await place.journal.append(made.run_id, [asked_to_end], fence=None)
        await runtime.heed()
    ending = (await facts_of(place.journal, made.run_id))[-1]
    assert isinstance(ending, RunCancelled)
    assert (ending.by, ending.reason) == ("ann", "enough")


class OpeningSlowly:
    """A journal across a wire that holds back what is read of a claimed run."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.claimed = asyncio.Event()
        self.go_on = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def run(self, run_id: str) -> RunRow | None:
        row = await self._journal.run(run_id)
        if row is not None and row.worker_id:
            self.claimed.set()
            await self.go_on.wait()
        return row


async def test_a_cancel_that_comes_while_the_session_opens_is_heeded(
    place: Place, runs: DescribedRuns
) -> None:
    made = await runs.create(embedded(), BY)
    slow = OpeningSlowly(place.journal)
    key = partial(SealKey.load, place.opener.home)
    runtime = Runtime(Keeping(cast(Journal, slow), Redactor([]), key))
    await runtime.recover()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(runtime.send(start_message()))
        await slow.claimed.wait()
        asked = RunCancelRequested(by="ann", reason="enough")
        await place.journal.append(made.run_id, [asked], fence=None)
        heeding = group.create_task(runtime.heed())
        await asyncio.wait((heeding,), timeout=0.05)
        slow.go_on.set()
    session = await runtime.find(SESSION_ID)
    assert session is not None
    assert session.state == "CANCELLED"


async def test_a_runtime_that_hangs_is_told_of_and_heeds_the_cancel_later(
    place: Place, runs: DescribedRuns
) -> None:
    body = embedded(metadata={"cancellationDelegated": True})
    made = await runs.create(body, BY)
    cancelling = Cancelling(place.tasks, runs, ControlPlaneSettings(), patience_s=0.01)

    async def cancel(row: RunRow) -> None:
        await cancelling.cancel(row, by="ann", reason="enough")

    async def suspend(row: RunRow) -> None:
        change_it = partial(change, place.journal, None, row, "running", "suspended")
        await change_it(by="ann", reason="", patience_s=0.01)

    async def refused(act: Callable[[RunRow], Awaitable[None]]) -> str:
        row = await place.journal.run(made.run_id)
        assert row is not None
        with pytest.raises(NotReady) as late:
            await act(row)
        assert late.value.code == "RUNTIME_TIMEOUT"
        return str(late.value)

    async with open_runtime(home(place)) as runtime:  # it does not look at what is asked
        await runtime.send(start_message())
        assert "may still be suspended" in await refused(suspend)
        assert "is cancelled as soon as it does" in await refused(cancel)
        await refused(cancel)
        await runtime.heed()
    types = [fact.type for fact in await facts_of(place.journal, made.run_id)]
    assert types.count(RunCancelRequested.TYPE) == 1
    assert types[-1] == RunCancelled.TYPE
