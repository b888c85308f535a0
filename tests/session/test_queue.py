"""A run and its workers: queued by one process, executed by others, parked while it waits."""

import asyncio
import re
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from batten.contract.envelope import decode
from batten.contract.errors import Conflict
from batten.journal.contract import RequestRow, RunRow
from tests.agent.stage import Stage, bash, call, say
from tests.contract.order import check_order

from . import queue_process
from .processes import PATIENCE_S, batten, environment

ASKS = ("--ask-operator", "--request-seconds", "300")

STORY = """\
run: {model} in {workspace}
> go
I look.
● bash touch made
  │ needs approval
  │ batten answer {request} allow|deny
  │ approved by operator
  │ queued again
  │ changed by the command: made
  └ ok
made it
✓ finished: 2 turns, $0.0000
session {session}
"""


def process(stage: Stage, order: str, *flags: str) -> Any:
    """What a process of its own prints."""
    ended = subprocess.run(
        [sys.executable, queue_process.__file__, order, str(stage.directory), *flags],
        capture_output=True,
        env={**environment(stage), "PYTHONPATH": "."},
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr.decode()
    return msgspec.json.decode(ended.stdout)


def row_of(stage: Stage, run_id: str) -> RunRow:
    journal = stage.journal()
    row = journal.run_now(run_id)
    journal.close()
    assert row is not None
    return row


def pending(stage: Stage, run_id: str) -> RequestRow:
    journal = stage.journal()
    (request,) = [one for one in asyncio.run(journal.requests(run_id)) if one.status == "pending"]
    journal.close()
    return request


def types(stage: Stage, run_id: str) -> list[str]:
    journal = stage.journal()
    run = [decode(stored.body) for stored in journal.read_now(run_id, limit=1000)]
    assert asyncio.run(journal.verify(run_id)) == []
    journal.close()
    if run[-1].type.startswith("run.f"):
        check_order(run)
    return [envelope.type for envelope in run]


def test_four_processes_share_one_run_and_it_reads_as_one_story(stage: Stage) -> None:
    model = stage.scenario([say("I look."), bash("touch made", "c1")], [say("made it")])
    run_id = process(stage, "queue", "--model", model, *ASKS)
    assert types(stage, run_id) == ["run.queued", "user.message"]
    queued = row_of(stage, run_id)
    assert (queued.status, queued.worker_id) == ("queued", "")

    assert process(stage, "work") == ["parked"]
    parked = row_of(stage, run_id)
    assert (parked.status, parked.worker_id) == ("awaiting_approval", "")
    assert process(stage, "work") == []
    assert not (stage.workspace / "made").exists()

    request_id = pending(stage, run_id).request_id
    assert batten(stage, "answer", request_id, "allow").returncode == 0
    assert types(stage, run_id)[-2:] == ["approval.resolved", "run.queued"]
    assert process(stage, "work") == ["completed"]
    assert (stage.workspace / "made").exists()

    told = types(stage, run_id)
    assert told.count("turn.started") == 2
    assert told.count("tool.invoked") == 1
    assert told.count("run.started") == 2
    assert "gap.run_disconnected" not in told
    shown = batten(stage, "show", run_id).stdout.decode()
    timeless = re.sub(r"(?m)^(?:\d\d:\d\d:\d\d| {8})  |(?:,| ·) [\d.]+ m?s$", "", shown)
    assert timeless == STORY.format(
        model=model, workspace=stage.workspace, request=request_id, session=parked.session_id
    )


def test_a_run_is_parked_when_the_reads_beside_the_question_have_ended(stage: Stage) -> None:
    (stage.workspace / "b.txt").write_text("bee\n")
    reads = [call("grep", f"g{number}", pattern="bee") for number in range(4)]
    asked = call("read_file", "asked", file_path="b.txt")
    model = stage.scenario([*reads, asked, call("glob", "last", pattern="*")], [say("seen")])
    flags = ("--model", model, "--allow", "*", "--ask", "read_file", *ASKS)
    run_id = process(stage, "queue", *flags)
    assert process(stage, "work") == ["parked"]
    told = types(stage, run_id)
    assert (told.count("tool.invoked"), told.count("tool.completed")) == (4, 4)
    assert told.index("approval.requested") > max(
        place for place, type_ in enumerate(told) if type_ == "tool.completed"
    )

    request_id = pending(stage, run_id).request_id
    assert batten(stage, "answer", request_id, "allow").returncode == 0
    assert process(stage, "work") == ["completed"]
    told = types(stage, run_id)
    assert (told.count("tool.invoked"), told.count("tool.completed")) == (6, 6)


def test_a_question_whose_deadline_passed_while_parked_is_closed_by_the_next_claim(
    stage: Stage,
) -> None:
    model = stage.scenario([bash("touch made", "c1")], [say("not then")])
    run_id = process(stage, "queue", "--model", model, "--ask-operator", "--request-seconds", "1")
    assert process(stage, "work") == ["parked"]
    while not (left := process(stage, "work")):
        pass
    assert left == ["cancelled"]  # nobody is there to decide what happens instead
    assert "approval.timed_out" in types(stage, run_id)
    assert not (stage.workspace / "made").exists()


async def test_runs_of_a_session_are_claimed_in_their_order(stage: Stage) -> None:
    model = stage.scenario([say("one")], [say("two")])
    async with stage.session("--model", model) as session:
        await session.queue("first")
        second = await session.queue("second")
        row = await session.deps.journal.run(second)
        assert row is not None
        with pytest.raises(Conflict, match="has not ended"):
            await session.claim(row)
        with pytest.raises(Conflict, match="waits for a worker"):
            await session.prompt("third")
        assert len(await queue_process.claimable(session.deps.journal)) == 2
    assert process(stage, "work") == ["completed", "completed"]
