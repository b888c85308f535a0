"""Cancelled in any phase: the run ends as cancelled, and nothing happens after that."""

import asyncio
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct

from tests.campaigns import embedder
from tests.campaigns.stage import (
    Finished,
    Json,
    Playing,
    Stage,
    assert_none_survive,
    at,
    bash,
    call,
    pause,
    say,
    terminal,
)
from tests.models.server import Fault, ModelServer

HANGING_S = 20.0
"""A process that takes longer to end than this waits for something."""


def _assert_cancelled(stage: Stage, ended: Finished, *, outcome: str = "cancelled") -> list[Json]:
    """One `run.cancelled`, the last of the run's facts; no effect begun once it was asked for."""
    (run,) = stage.runs()
    envelopes = stage.envelopes(run["run_id"])
    assert ended.lines() == stage.stored(run["run_id"])[: len(ended.lines())]
    ending = terminal(envelopes)
    assert (ended.code, ending["type"], ending["data"]["outcome"]) == (
        130 if outcome == "interrupted" else 124, "run.cancelled", outcome,
    ), ended.err  # fmt: skip
    assert ending is envelopes[-1]
    types = [one["type"] for one in envelopes]
    assert types.count("run.cancel_requested") == 1
    assert "tool.invoked" not in types[types.index("run.cancel_requested") :]
    assert ended.ended_at - at(ending) < HANGING_S
    assert_none_survive(str(stage.workspace))
    stage.verify()
    return envelopes


class Phase(Struct, frozen=True):
    """A place in a run: what is played to get there, and the fact that says we are."""

    frames: list[list[Json]]
    reached: Callable[[Json], bool]
    argv: tuple[str, ...] = ("--allow", "bash")


def _at(kind: str) -> Callable[[Json], bool]:
    return lambda envelope: envelope["type"] == kind


_TICKS = "while :; do echo $EPOCHREALTIME >> ticks; sleep 0.05; done"
_PHASES = {
    "before the model says anything": Phase([[pause(60_000)]], _at("turn.started")),
    "in the middle of a text": Phase(
        [[say("word " * 1000, stream_ms=60_000)]], _at("assistant.text_delta")
    ),
    "between a proposal and its start": Phase(
        [[bash("touch begun"), pause(60_000)]], _at("assistant.tool_call_proposed")
    ),
    "while a tool runs": Phase([[bash(_TICKS)]], _at("tool.shell.command")),
    "while a daemon of a tool runs": Phase(
        [[bash(f"(setsid bash -c '{_TICKS}' </dev/null >/dev/null 2>&1 &); sleep 600")]],
        _at("tool.shell.command"),
    ),
    "between two tools": Phase(
        [[bash("true"), bash("sleep 600"), bash("touch begun")]], _at("tool.completed")
    ),
    "after a tool": Phase([[bash("true")], [pause(60_000)]], _at("tool.completed")),
    "while it waits for an approval": Phase(
        [[bash("touch begun")]], _at("approval.requested"), ("--ask-operator",)
    ),
    "in the pause before it tries again": Phase(
        [[{"kind": "error", "type": "transient", "message": "Busy."}]], _at("error.upstream")
    ),
}


def _assert_no_effect_after(stage: Stage, envelopes: list[Json]) -> None:
    assert not (stage.workspace / "begun").exists()
    ticks = stage.workspace / "ticks"
    if ticks.exists() and (said := ticks.read_text().split()):
        assert float(said[-1]) < at(envelopes[-1]) + 0.001


def _cancel_in(
    stage: Stage, phase: Phase, *, later_s: float = 0.0, once: Path | None = None
) -> list[Json]:
    """`once`: a file that the phase makes."""
    model = stage.scenario(*phase.frames)
    playing = stage.start("-p", "go", "--model", model, "--output-format", "events", *phase.argv)
    playing.until(phase.reached)
    time.sleep(later_s)
    while once is not None and not once.exists():
        assert playing.running
        time.sleep(0.01)
    playing.interrupt()
    envelopes = _assert_cancelled(stage, playing.end())
    _assert_no_effect_after(stage, envelopes)
    return envelopes


@pytest.mark.parametrize("phase", _PHASES.values(), ids=_PHASES.keys())
def test_no_effect_follows_a_cancel(stage: Stage, phase: Phase) -> None:
    _cancel_in(stage, phase)


@pytest.mark.soak
@pytest.mark.parametrize("phase", _PHASES.values(), ids=_PHASES.keys())
def test_no_effect_follows_a_cancel_a_little_later_in_any_phase(
    tmp_path: Path, phase: Phase
) -> None:
    moments = random.Random(time.time_ns())
    for number in range(20):
        with Stage(tmp_path / str(number)) as stage:
            _cancel_in(stage, phase, later_s=moments.uniform(0, 0.2))


def test_a_running_tool_is_cancelled_with_its_run(stage: Stage) -> None:
    ticks = stage.workspace / "ticks"
    envelopes = _cancel_in(stage, _PHASES["while a tool runs"], once=ticks)
    endings = ("run.cancel_requested", "tool.cancelled", "run.cancelled")
    assert [one["type"] for one in envelopes if one["type"] in endings] == list(endings)


def test_a_question_is_closed_with_its_run(stage: Stage) -> None:
    envelopes = _cancel_in(stage, _PHASES["while it waits for an approval"])
    (resolved,) = [one for one in envelopes if one["type"] == "approval.resolved"]
    assert resolved["data"]["decision"] == "cancelled"
    assert stage.batten("requests").out == b""


async def test_a_silent_provider_is_left_at_once(stage: Stage) -> None:
    async with ModelServer([[Fault.STALL]]) as server:
        playing = stage.prompt("anthropic/claude-sonnet-4-6", **server.environ())
        await asyncio.to_thread(playing.until_type, "turn.started")
        async with asyncio.timeout(30):
            await server.asked.wait()
        playing.interrupt()
        _assert_cancelled(stage, await asyncio.to_thread(playing.end))


def test_a_polite_signal_cancels_too(stage: Stage) -> None:
    playing = stage.prompt(stage.scenario([bash("sleep 600")]))
    playing.until_type("tool.shell.command")
    playing.signal(signal.SIGTERM)
    _assert_cancelled(stage, playing.end())


def _reluctant(stage: Stage) -> Playing:
    model = stage.scenario([call("stuck", how="reluctant")], [say("Never said.")])
    playing = stage.start_program(
        (sys.executable, embedder.__file__),
        "-p", "go", "--model", model, "--allow", "stuck", "--output-format", "events",
    )  # fmt: skip
    playing.until_type("tool.invoked")
    playing.interrupt()
    playing.until_type("run.cancel_requested")
    return playing


def test_a_second_interrupt_does_not_wait_for_what_will_not_end(stage: Stage) -> None:
    playing = _reluctant(stage)
    playing.interrupt()
    _assert_cancelled(stage, playing.end(), outcome="interrupted")


@pytest.mark.soak
def test_a_cancel_does_not_wait_for_ever_for_what_will_not_end(stage: Stage) -> None:
    _assert_cancelled(stage, _reluctant(stage).end())


def _interrupt_at(stage: Stage, model: str, after_s: float) -> None:
    """From the very start of the process: cancelled, with one ending if there is a run."""
    playing = stage.prompt(model)
    time.sleep(after_s)
    playing.interrupt()
    ended = playing.end()
    # Before the interpreter has come to our `main`, it leaves in its own way.
    assert b", in run" not in ended.err, ended.err
    if b"Traceback" not in ended.err:
        assert ended.code in (124, 130, -signal.SIGINT), ended.err
    if ended.out:
        run_id = ended.frames()[0]["run_id"]
        assert ended.code == 124
        assert ended.lines() == stage.stored(run_id)
        assert terminal(ended.frames())["type"] == "run.cancelled"
    if (stage.home / "journal.db").exists():
        assert {run["state"] for run in stage.runs()} <= {"cancelled"}


def test_an_interrupt_while_the_run_begins_leaves_no_run_without_an_ending(stage: Stage) -> None:
    model = stage.scenario([say("x" * 1000, stream_ms=60_000)])
    for step in range(6):
        _interrupt_at(stage, model, 0.03 + 0.04 * step)


@pytest.mark.soak
def test_no_moment_of_the_beginning_is_unsafe_to_interrupt(stage: Stage) -> None:
    model = stage.scenario([say("x" * 1000, stream_ms=60_000)])
    for step in range(200):
        _interrupt_at(stage, model, 0.002 * step)
