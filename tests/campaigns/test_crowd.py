"""Many at once on one home, from nothing: everybody gets through."""

import pytest

from tests.campaigns.stage import Stage, bash, say, terminal


def _crowd(stage: Stage, size: int) -> None:
    """All start before any has ended, on a home that does not exist yet."""
    models = [
        stage.scenario(
            [say(f"I am {number}."), bash(f"echo {number} >> seen")],
            [say(f"Done {number}.")],
            name=f"play{number}",
        )
        for number in range(size)
    ]
    crowd = [stage.prompt(model) for model in models]
    finished = [playing.end() for playing in crowd]
    assert [ended.code for ended in finished] == [0] * size, {ended.err for ended in finished}
    for ended in finished:
        envelopes = ended.frames()
        assert terminal(envelopes)["type"] == "run.finished"
        assert stage.stored(envelopes[0]["run_id"]) == ended.lines()
    seen = (stage.workspace / "seen").read_text().split()
    assert sorted(map(int, seen)) == list(range(size))
    assert len(stage.runs()) == size
    stage.verify()


def test_twelve_at_once_on_a_new_home_all_succeed(stage: Stage) -> None:
    _crowd(stage, 12)


@pytest.mark.soak
def test_fifty_at_once_on_a_new_home_all_succeed(stage: Stage) -> None:
    _crowd(stage, 50)
