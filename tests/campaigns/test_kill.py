"""Killed at any moment: what was seen is kept, nothing is left running, the session goes on."""

import random
import time
from itertools import count
from uuid import uuid4

import pytest

from batten.contract.facts import TERMINAL
from tests.campaigns.stage import (
    Finished,
    Json,
    Stage,
    assert_none_survive,
    bash,
    pause,
    processes,
    say,
    terminal,
)

_LATER_S = 0.15
"""About the longest pause between two lines."""


def _busy_frames(marker: str) -> list[list[Json]]:
    """Words, output and effects; and children of every kind that would like to stay."""
    daemon = f"(setsid bash -c 'exec -a {marker}-daemon sleep 600' </dev/null >/dev/null 2>&1 &)"
    in_group = f"bash -c 'exec -a {marker}-child sleep 600' & "
    return [
        [say("I begin with a few words. " * 8, stream_ms=208), bash(f"{daemon}; echo begun")],
        [bash(f"{in_group} seq 2000; sleep 0.1"), bash(f"{daemon}; sleep 0.1; seq 5")],
        [say("Almost done. " * 10), pause(50), bash("for i in 1 2 3 4; do sleep .02; echo; done")],
        [say("Done.")],
    ]


def _uninterrupted(stage: Stage, model: str) -> int:
    """How many lines it prints."""
    ended = stage.prompt(model).end()
    assert ended.code == 0, ended.err
    return len(ended.lines())


def _assert_kept(stage: Stage, printed: bytes, run_id: str) -> None:
    """Whatever was printed, down to half a line, is the beginning of what is stored."""
    stored = b"".join(line + b"\n" for line in stage.stored(run_id))
    assert stored.startswith(printed)


def _assert_resumes(stage: Stage, run: Json, *, with_prompt: bool) -> None:
    """The session goes on, with a new prompt or in place; the killed run gets its one ending."""
    if with_prompt or run["state"] != "abandoned":
        ended = stage.resume(run["session_id"], "go on").end()
        assert ended.frames()[0]["data"]["prior_run_id"] == run["run_id"]
        terminal(stage.envelopes(run["run_id"]))
    else:
        ended = stage.resume(run["run_id"]).end()
    assert ended.code == 0, ended.err
    assert stage.stored(ended.frames()[0]["run_id"]) == ended.lines()
    assert terminal(ended.frames())["type"] == "run.finished"


def _kill_once(stage: Stage, model: str, line: int, later_s: float, marker: str) -> Finished:
    """Kill a run a little later than it has printed this line: how fast it is does not matter."""
    playing = stage.prompt(model)
    numbers = count(1)
    if line:
        playing.until(lambda _: next(numbers) == line)
    time.sleep(later_s)
    playing.kill()
    ended = playing.end()
    assert_none_survive(marker)
    # The keeper and its sandbox name the workspace in their arguments.
    assert_none_survive(str(stage.workspace))
    return ended


def _campaign(stage: Stage, kills: int, seed: int) -> None:
    moments = random.Random(seed)
    marker = uuid4().hex
    model = stage.scenario(*_busy_frames(marker))
    whole = _uninterrupted(stage, model)
    known = {run["run_id"] for run in stage.runs()}
    interrupted = 0
    for number in range(kills):
        line, later_s = moments.randrange(whole), moments.uniform(0, _LATER_S)
        ended = _kill_once(stage, model, line if number else 0, later_s, marker)
        new = [run for run in stage.runs() if run["run_id"] not in known]
        known |= {run["run_id"] for run in new}
        if not new:
            assert ended.out == b""
            continue
        _assert_kept(stage, ended.out, new[-1]["run_id"])
        stage.verify()
        interrupted += new[-1]["state"] == "abandoned"
        _assert_resumes(stage, new[-1], with_prompt=number % 2 == 0)
        assert_none_survive(marker)
    stage.verify()
    assert interrupted > kills // 4, "the kills came too early or too late to prove anything"


def test_a_kill_at_any_moment_loses_nothing_seen_and_leaves_nothing_running(
    stage: Stage,
) -> None:
    _campaign(stage, kills=5, seed=1)


@pytest.mark.soak
def test_two_hundred_kills_lose_nothing_seen_and_leave_nothing_running(stage: Stage) -> None:
    _campaign(stage, kills=200, seed=time.time_ns())


def test_children_that_run_at_the_kill_do_not_outlive_it(stage: Stage) -> None:
    marker = uuid4().hex
    stay = f"exec -a {marker} sleep 600"
    planted = f"bash -c '{stay}' & (setsid bash -c '{stay}' >/dev/null 2>&1 &); echo planted; wait"
    playing = stage.prompt(stage.scenario([bash(planted)]))
    playing.until_type("tool.shell.output_chunk", data="planted\n")
    while len(processes(f"{marker} 600")) < 2:
        time.sleep(0.01)
    playing.kill()
    playing.end()
    assert_none_survive(marker)
    (run,) = stage.runs()
    assert run["state"] == "abandoned"
    assert not [one for one in stage.envelopes(run["run_id"]) if one["type"] in TERMINAL]
