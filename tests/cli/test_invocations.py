"""Whole invocations of several messages: frame, events and exit code tell of the same ending."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from batten.agent.ending import terminal_fact
from batten.agent.progress import Progress
from batten.contract.outcomes import ENDINGS, Outcome
from batten.protocols.stream_json import StreamJson
from tests.models.server import Fault, Reply, answer, refusal
from tests.models.wire import (
    anthropic_end,
    anthropic_start,
    anthropic_text_block,
    anthropic_turn,
    sse,
)

from .invoking import Json, Said, Shell, serving
from .test_agreement import CODES, OUTCOMES, stored

FLAGS = (
    "--model", "anthropic/claude-sonnet-4-6", "--sandbox", "none", "--input-format", "stream-json",
    "--max-turns", "2", "--fail-on", "denied", "--deny", "bash",
)  # fmt: skip


def _stopped(reason: str) -> Reply:
    words = anthropic_text_block(0, "I say this.")
    return answer(sse(anthropic_start(), *words, *anthropic_end(reason), named=True))


def _calling(tool: str, **arguments: object) -> Reply:
    return answer(anthropic_turn("I look.", [("c1", tool, arguments)]))


class Pass(Struct, frozen=True):
    """One message: what the model answers, and how its run ends."""

    outcome: Outcome
    replies: tuple[Reply, ...]
    turns: int


_well = answer(anthropic_turn("Well."))
PASSES = {
    "well": Pass("completed", (_well,), 1),
    "well after a tool": Pass("completed", (_calling("todo_write", todos=[]), _well), 2),
    "a wrong key": Pass(
        "model_error",
        (refusal(401, {"error": {"type": "authentication_error", "message": "no"}}),),
        0,
    ),
    "cut off": Pass("model_error", (_stopped("max_tokens"),), 1),
    "refused": Pass("refused", (_stopped("refusal"),), 1),
    "too many turns": Pass(
        "max_turns",
        (_calling("todo_write", todos=[]), _calling("glob", pattern="*")),
        2,
    ),
    "a denied call": Pass("denied", (_calling("bash", command="true"), _well), 2),
}
INTERRUPTED = Pass("cancelled", ([Fault.STALL],), 0)
WRONG = st.sampled_from([b"", b"{\n", b'{"type":"user","message":{}}\n', b'{"type":"x"}\n'])


def _message(number: int) -> bytes:
    return msgspec.json.encode({"type": "user", "content": f"message {number}"}) + b"\n"


def _invoke(shell: Shell, passes: Sequence[Pass], wrong: bytes, form: str) -> Said:
    stdin = b"".join(_message(number) for number in range(len(passes)))
    if INTERRUPTED in passes:
        stdin += b'{"type":"control","subtype":"interrupt"}\n'
    replies = [reply for one in passes for reply in one.replies]
    with serving(shell, replies or [_well]):
        return shell(*FLAGS, "--output-format", form, stdin=stdin + wrong)


def _ending(passes: Sequence[Pass], wrong: bytes) -> Outcome:
    """What an invocation comes to: its input's error, else what its last run came to."""
    if wrong:
        return "usage"
    return passes[-1].outcome if passes else "no_input"


def _assert_agreement(said: Said, outcome: Outcome, turns: int) -> None:
    ending, result = ENDINGS[outcome], said.result
    assert (said.code, result["subtype"]) == (ending.exit_code, ending.subtype)
    assert [frame["type"] for frame in said.frames()].count("result") == 1
    assert ("result" in result) == (ending.subtype == "success")
    assert ("error" in result) == (ending.subtype == "error")
    assert ("tool_calls_seen" in result) == (ending.subtype != "success")
    assert result["turns"] == turns


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(st.sampled_from(list(PASSES.values())), max_size=3),
    st.booleans(),
    WRONG,
    st.sampled_from(["stream-json", "json"]),
)
def test_an_invocation_ends_as_its_last_run_or_as_its_input(
    shell: Shell, passes: list[Pass], interrupted: bool, wrong: bytes, form: str
) -> None:
    passes = passes or [INTERRUPTED] * interrupted
    said = _invoke(shell, passes, wrong, form)
    _assert_agreement(said, _ending(passes, wrong), sum(one.turns for one in passes))
    rows = [
        row
        for row in shell("runs", "--json", "--limit", "1000").frames()
        if row["session_id"] == said.result["session_id"]
    ]
    assert [row["outcome"] for row in reversed(rows)] == [one.outcome for one in passes]


@pytest.mark.parametrize("name", PASSES)
def test_the_events_of_an_invocation_end_with_the_fact_of_its_exit_code(
    shell: Shell, name: str
) -> None:
    said = _invoke(shell, [PASSES["well"], PASSES[name]], b"", "events")
    endings: list[Json] = [
        frame for frame in said.frames() if frame["type"] in ("run.finished", "run.failed")
    ]
    outcome = PASSES[name].outcome
    assert [one["type"] for one in endings] == ["run.finished", ENDINGS[outcome].terminal]
    assert said.frames()[-1] == endings[-1]
    assert said.code == ENDINGS[outcome].exit_code


@given(st.lists(st.sampled_from(OUTCOMES)), st.none() | st.sampled_from(OUTCOMES), st.booleans())
def test_whatever_runs_came_before_the_last_word_counts(
    outcomes: list[Outcome], failed: Outcome | None, unended: bool
) -> None:
    """Runs one after the other, one that may have no ending, and what no run tells of."""
    codec = StreamJson("chat_1")
    last: Outcome = "internal"
    for last in outcomes:
        codec.user("go")
        codec.feed(stored(terminal_fact(last, "why", Progress(), 1)))
        assert codec.outcome == last
    if unended:
        codec.user("and again")
        last = "internal"
    if failed is not None:
        codec.fail(failed, "why")
        last = failed
    result = codec.result()
    assert result["subtype"] == ENDINGS[last].subtype
    assert ENDINGS[last].exit_code in CODES[result["subtype"]]
    assert ("result" in result) == (last == "completed")
