"""Print mode under random faults: one result that agrees with the exit code, in time, no orphan."""

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from batten.contract.facts import TERMINAL
from batten.contract.outcomes import ENDINGS
from batten.journal.contract import RunRow
from batten.journal.sqlite import SqliteJournal
from batten.session.history import envelopes_of, prompts_of
from tests.campaigns.faulty import Plan, Planner, Seen, carry_out
from tests.campaigns.stage import BATTEN

AT_ONCE = 3
BETWEEN_ENDING_AND_EXIT_S = 2.0
HANGING_S = 20.0
"""What no machine is too busy for."""
SUBTYPES = {ending.exit_code: ending.subtype for ending in ENDINGS.values()}
OUTSIDE_RUNS = {64, 66, 78, 124, 130}
"""Exit codes that may come from outside the runs: their input, or somebody who ends everything."""


def _leftovers(seen: Seen) -> list[str]:
    """Living processes that work in its directory, or run its command."""
    marker = f"sleep 7{seen.plan.number:05d}"
    found: list[str] = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            line = Path("/proc", name, "cmdline").read_bytes().replace(b"\0", b" ").decode()
            place = os.readlink(f"/proc/{name}/cwd")
        except (OSError, UnicodeDecodeError):
            continue
        if place == seen.workspace or seen.workspace in line or marker in line:
            found.append(line)
    return found


async def _no_orphans(seen: Seen) -> None:
    patience = time.monotonic() + 5
    while left := _leftovers(seen):
        assert time.monotonic() < patience, left
        await asyncio.sleep(0.02)


def _too_early(seen: Seen) -> bool:
    """Ended by a signal before there was anything to end: while Python or our modules load."""
    early = seen.code in (-signal.SIGTERM, -signal.SIGINT, 124) or "KeyboardInterrupt" in seen.err
    return bool(seen.plan.signals) and not seen.out and early


def _assert_output(seen: Seen, runs: list[RunRow]) -> None:
    """What it wrote is whole, and says what its exit code says."""
    match seen.plan.output:
        case "text":
            assert (seen.code == 0) == bool(seen.out), seen.out
        case "events":
            _assert_events(seen, runs)
        case form:
            frames = seen.frames()
            results = [frame for frame in frames if frame["type"] == "result"]
            if seen.code == 130:
                assert results == []
                return
            assert len(results) == 1
            assert frames[-1:] == results
            assert results[0]["subtype"] == SUBTYPES[seen.code]
            assert ("error" in results[0]) == (results[0]["subtype"] == "error")
            assert form == "stream-json" or len(frames) == 1
            inits = [frame for frame in frames if frame.get("subtype") == "init"]
            assert inits == frames[:1] if form == "stream-json" and runs else len(inits) <= 1


def _assert_events(seen: Seen, runs: list[RunRow]) -> None:
    frames = seen.frames()
    endings = [frame["run_id"] for frame in frames if frame["type"] in TERMINAL]
    shown = list(dict.fromkeys(frame["run_id"] for frame in frames))
    assert shown == [run.run_id for run in runs][: len(shown)]
    if seen.code != 130:
        assert endings == shown == [run.run_id for run in runs]


async def _ended_at(journal: SqliteJournal, runs: list[RunRow]) -> float:
    """When the last of its runs ended, in seconds of the epoch."""
    from datetime import datetime

    found = 0.0
    for run in runs[-1:]:
        async for envelope in envelopes_of(journal, run.run_id):
            if envelope.type in TERMINAL:
                found = datetime.fromisoformat(envelope.occurred_at).timestamp()
    return found


async def _check(seen: Seen, journal: SqliteJournal, within_s: float) -> None:
    plan = seen.plan
    sessions = await journal.sessions(workspace_path=seen.workspace)
    assert len(sessions) <= 1
    runs = await prompts_of(journal, sessions[0].session_id) if sessions else []
    if not runs and _too_early(seen):
        return
    assert "Traceback" not in seen.err, seen.err
    assert seen.code in plan.codes, seen.err
    assert all(run.outcome is not None for run in (runs[:-1] if seen.code == 130 else runs))
    last = runs[-1].outcome if runs else None
    if seen.code not in OUTSIDE_RUNS:
        assert last is not None
        # A reader that is not there to be told turns success into an error.
        wanted = ENDINGS[last].exit_code
        assert seen.code == wanted or (seen.code == 1 and not plan.reads)
    if plan.reads:
        _assert_output(seen, runs)
    late_s = seen.ended_at - max(seen.acted_at, await _ended_at(journal, runs))
    assert late_s < within_s


async def _one(plan: Plan, directory: Path, home: Path, within_s: float) -> Seen:
    seen = await carry_out(plan, directory, home)
    try:
        await _no_orphans(seen)
        journal = SqliteJournal.open(home, read_only=True)
        try:
            await _check(seen, journal, within_s)
        finally:
            journal.close()
    except AssertionError as error:
        error.add_note(f"{plan.number}: {plan.what}; {str(plan.acts)[-200:]}; {plan.argv}")
        error.add_note(f"exit code {seen.code}; stderr: {seen.err}; stdout: {seen.out[-500:]!r}")
        raise
    return seen


async def _campaign(directory: Path, count: int, seed: int, within_s: float) -> Counter[int]:
    """So many plans, a few of them at once."""
    sys.stdout.write(f"seed {seed}\n")
    planner, home = Planner(seed), directory / "home"
    SqliteJournal.open(home).close()  # so that there is one, also if the first ends too early
    plans = iter([planner.draw() for _ in range(count)])
    codes: Counter[int] = Counter()
    failed: list[AssertionError] = []

    async def work() -> None:
        for plan in plans:
            try:
                codes[(await _one(plan, directory, home, within_s)).code] += 1
            except AssertionError as error:
                failed.append(error)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())
    process = await asyncio.create_subprocess_exec(
        BATTEN, "verify", env={"BATTEN_HOME": str(home), "PATH": os.defpath}
    )
    assert await process.wait() == 0
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {count} with seed {seed}", failed)
    return codes


async def test_whatever_happens_there_is_one_result_and_an_end(tmp_path: Path) -> None:
    codes = await _campaign(tmp_path, 25, seed=3, within_s=HANGING_S)
    assert {0, 1, 124} <= codes.keys()


@pytest.mark.soak
async def test_a_thousand_faults_and_always_one_result_and_an_end(tmp_path: Path) -> None:
    seed = int(os.environ.get("BATTEN_CAMPAIGN_SEED", time.time_ns()))
    codes = await _campaign(tmp_path, 1000, seed=seed, within_s=BETWEEN_ENDING_AND_EXIT_S)
    sys.stdout.write(f"exit codes: {dict(codes)}\n")
    assert {0, 1, 64, 66, 124, 130} <= codes.keys()
