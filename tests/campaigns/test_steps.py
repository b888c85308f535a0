"""Killed at any step and resumed: every step has its effect once, or is said to be unknown."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from batten.contract.facts import TOOL_TERMINAL
from tests.campaigns.stage import (
    Json,
    Playing,
    Stage,
    assert_none_survive,
    bash,
    call,
    say,
    terminal,
)

STEPS = 30


def _statement(n: int) -> Json:
    """Leaves the line `n`: before a little sleep, after it, or by an edit."""
    if n % 3 == 2:
        return call("edit_file", path="edits", old_string="end\n", new_string=f"{n}\nend\n")
    early, late = "echo {} >> steps; sleep 0.02", "sleep 0.02; echo {} >> steps"
    return bash((early, late)[n % 3].format(n))


def _prompt(stage: Stage) -> Playing:
    (stage.workspace / "edits").write_text("end\n")
    frames = [[_statement(n)] for n in range(STEPS - 2)]
    together = [_statement(STEPS - 2), _statement(STEPS - 1)]
    model = stage.scenario(*frames, together, [say("All steps are done.")])
    return stage.prompt(model, "--permission-mode", "acceptEdits")


def _assert_each_step_once(stage: Stage, run_id: str) -> int:
    """No step twice, none missing without a word; how many have an unknown outcome."""
    envelopes = stage.envelopes(run_id)
    assert terminal(envelopes)["type"] == "run.finished"
    ended = [one for one in envelopes if one["type"] in TOOL_TERMINAL]
    assert Counter(one["data"]["tool_call_id"] for one in ended).most_common(1)[0][1] == 1
    assert len(ended) == STEPS
    unknown = [one["data"] for one in ended if one["type"] != "tool.completed"]
    assert {(one["error_kind"], one["summary"]) for one in unknown} <= {
        ("outcome_unknown", "outcome unknown")
    }
    lines = Counter(_lines(stage, "steps") + _lines(stage, "edits"))
    assert lines.most_common(1)[0][1] == 1
    missing = {str(n) for n in range(STEPS)} - lines.keys()
    assert missing <= {_step(envelopes, one["tool_call_id"]) for one in unknown}
    return len(unknown)


def _lines(stage: Stage, name: str) -> list[str]:
    return (stage.workspace / name).read_text().split()


def _step(envelopes: list[Json], call_id: str) -> str:
    """The number a call would have written."""
    (proposed,) = [
        one["data"]
        for one in envelopes
        if one["type"] == "assistant.tool_call_proposed" and one["data"]["tool_call_id"] == call_id
    ]
    given = proposed["input"]
    text = given["new_string"] if "new_string" in given else given["command"].partition("echo ")[2]
    return str(text.split()[0])


def _assert_reverts_or_says_why_not(stage: Stage, run_id: str) -> None:
    """Edits of unknown outcome may stand in the way; then nothing is changed, and it is said."""
    after = _lines(stage, "edits")
    reverted = stage.batten("revert", run_id)
    if reverted.code == 0:
        assert _lines(stage, "edits") == ["end"]
    else:
        assert b"edits" in reverted.err
        assert _lines(stage, "edits") == after


def _past(sequence: int) -> Callable[[Json], bool]:
    return lambda envelope: envelope["sequence"] >= sequence


def test_a_run_killed_again_and_again_has_each_effect_once(stage: Stage) -> None:
    playing = _prompt(stage)
    run_id = ""
    kills = 0
    while found := playing.reaches(_past(kills * 15)):
        run_id = str(found["run_id"])
        playing.kill()
        playing.end()
        assert_none_survive(str(stage.workspace))
        kills += 1
        if stage.runs()[0]["outcome"] is not None:
            break
        playing = stage.resume(run_id)
    assert kills > 20
    assert _assert_each_step_once(stage, run_id) > 0
    _assert_reverts_or_says_why_not(stage, run_id)
    stage.verify()


@pytest.mark.soak
def test_a_run_killed_at_any_fact_has_each_effect_once(tmp_path: Path) -> None:
    unknown = 0
    sequence = 0
    while True:
        with Stage(tmp_path / str(sequence)) as stage:
            playing = _prompt(stage)
            if not playing.reaches(_past(sequence)):
                break
            playing.kill()
            playing.end()
            assert_none_survive(str(stage.workspace))
            (run,) = stage.runs()
            if run["state"] == "abandoned":
                assert stage.resume(run["run_id"]).end().code == 0
            unknown += _assert_each_step_once(stage, run["run_id"])
            _assert_reverts_or_says_why_not(stage, run["run_id"])
            stage.verify()
        sequence += 1
    assert sequence > STEPS * 10
    assert unknown > 0
