"""Print mode's frames for every ending, compared whole with the golden ones beside this file."""

import msgspec
import pytest

from batten.contract import facts as f
from batten.contract.facts import Fact
from batten.contract.facts.assistant import MessageBlock, Usage
from batten.contract.notes import ThinkingPiece
from batten.protocols.json_line import encode
from batten.protocols.stream_json import FrameOptions, StreamJson
from tests.agent.acting import Acting
from tests.agent.stage import Statement, bash, call, end, fail, say
from tests.cli.invoking import Json, Said, Shell, serving
from tests.contract.journals import GOLDEN as JOURNALS
from tests.contract.journals import OF_SESSIONS, envelopes
from tests.models.server import answer
from tests.models.wire import anthropic_turn

from .transcripts import GOLDEN, compare, normalised, set_prices

SCHEMA = '{"type": "object", "required": ["count"]}'
CASES: dict[str, tuple[list[list[Statement]], list[str], int]] = {
    "success": ([[say("I look."), bash("echo hi", "c1")], [say("All is well.")]], [], 0),
    "several_calls": (
        [
            [bash("echo 1", "c1"), bash("exit 3", "c2"), call("hammer", "c3", nail=1)],
            [say("Done.")],
        ],
        [],
        0,
    ),
    "denied": ([[call("acting", "c1", act="no")], [say("Then not.")]], ["--deny", "acting"], 0),
    "structured": ([[say('{"count": 3}')]], ["--json-schema", SCHEMA], 0),
    "schema_invalid": ([[say("No.")]] * 3, ["--json-schema", SCHEMA], 2),
    "max_turns": ([[say("I look."), bash("echo hi", "c1")]], ["--max-turns", "1"], 75),
    "no_turns": ([[say("never said")]], ["--max-turns", "0"], 75),
    "model_error": ([[say("I look."), bash("true", "c1")], [fail("fatal", "No more.")]], [], 1),
    "cut_off": ([[say("It goes"), end("limit_exceeded")]], [], 1),
    "aborted": ([[end("aborted")]], [], 1),
    "retried": ([[fail("transient", "Hiccup.", times=1), say("well")]], [], 0),
    "timeout": ([[bash("sleep 30", "c1")]], ["--max-seconds", "1"], 1),
}


def play(shell: Shell, name: str, form: str) -> Said:
    frames, flags, code = CASES[name]
    model = shell.stage.scenario(*frames)
    said = shell(
        "-p", "go", "--model", model, "--sandbox", "none", "--permission-mode", "dontAsk",
        "--output-format", form, *flags, tools=[Acting()],
    )  # fmt: skip
    assert said.code == code
    return said


@pytest.mark.parametrize("name", CASES)
def test_the_frames_of_a_run_are_the_golden_ones(shell: Shell, name: str) -> None:
    compare(name, play(shell, name, "stream-json").frames(), shell)


@pytest.mark.parametrize("name", CASES)
def test_json_is_the_last_frame_alone(shell: Shell, name: str) -> None:
    (frame,) = play(shell, name, "json").frames()
    golden = (GOLDEN / f"{name}.jsonl").read_bytes().splitlines()
    assert normalised(frame, shell) == msgspec.json.decode(golden[-1])


def test_a_budget_exceeded_and_a_price_unknown_are_golden_too(shell: Shell) -> None:
    set_prices(shell)
    step = answer(anthropic_turn("I plan.", [("c1", "todo_write", {"todos": []})]))
    with serving(shell, [step]):
        spent = shell.print(
            "anthropic/m", "--output-format", "stream-json", "--max-budget-usd", "0.01"
        )
    assert spent.code == 137
    compare("budget", spent.frames(), shell)
    with serving(shell, [answer(anthropic_turn("well"))]):
        unknown = shell.print("anthropic/unheard-of", "--output-format", "stream-json")
    compare("cost_unknown", unknown.frames(), shell)


def test_every_golden_stream_keeps_the_order_of_frames() -> None:
    for path in GOLDEN.glob("*.jsonl"):
        frames = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
        kinds = [frame["type"] for frame in frames]
        # A session that cannot begin has nothing to tell of itself.
        assert kinds[0] == "system" or len(kinds) == 1
        assert kinds[-1] == "result"
        assert kinds.count("result") == 1
        uses = [frame for frame in frames if frame["type"] == "tool_use"]
        nested = [
            block
            for frame in frames
            if frame["type"] == "message"
            for block in frame["content"]
            if block["type"] == "tool_use"
        ]
        assert uses == nested
        results = [frame["tool_use_id"] for frame in frames if frame["type"] == "tool_result"]
        assert results == [use["id"] for use in uses]


def frames_of(facts: list[Fact]) -> list[Json]:
    codec = StreamJson("chat_1")
    return [frame for fact in facts for frame in codec.feed(fact)]


@pytest.mark.parametrize("name", [name for name in JOURNALS if name not in OF_SESSIONS])
def test_the_golden_journals_can_be_told_as_frames(name: str) -> None:
    facts = [envelope.data for envelope in envelopes(name)]
    codec = StreamJson("chat_1")
    frames = [frame for fact in facts for frame in codec.feed(fact)]
    messages = [fact for fact in facts if isinstance(fact, f.AssistantMessageComplete)]
    assert [frame["type"] for frame in frames].count("message") == len(messages)
    assert codec.outcome is not None
    assert codec.result()["turns"] == len(messages)
    assert encode(codec.result()).endswith(b"}\n")


def test_the_result_lists_what_commands_left_running(shell: Shell) -> None:
    said = shell.play(
        [bash("sleep 61 & echo a")],
        [say("done")],
        flags=["--allow", "bash", "--output-format", "json"],
    )
    assert said.result["background"] == ["sleep 61"]
    said = shell.play([say("done")], flags=["--output-format", "json"])
    assert "background" not in said.result


def test_a_frame_is_one_line_whatever_it_says() -> None:
    frame = {"text": "a\nb\r\u2028c\u2029d\x85e\x0bf\x1cg — \u0385\u2027"}
    (line,) = encode(frame).decode().splitlines()
    assert msgspec.json.decode(line) == frame


def test_a_fact_nobody_knows_gives_no_frame() -> None:
    assert frames_of([f.Unknown(type="tool.dreamt", data={})]) == []


def test_what_a_failed_attempt_said_is_not_in_the_message_that_follows() -> None:
    frames = frames_of(
        [
            f.TurnStarted(1, "m", "p", 1),
            f.AssistantTextDelta(1, 0, "half"),
            f.TurnFailed(1, "broken", "it broke", True),
            f.TurnStarted(1, "m", "p", 1),
            f.AssistantTextDelta(1, 0, "whole"),
            *_complete(),
        ]
    )
    assert frames == [
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "whole"}]}
    ]


def test_a_run_that_ends_within_a_message_tells_what_is_whole_of_it() -> None:
    codec = StreamJson("chat_1")
    facts = [
        f.TurnStarted(1, "m", "p", 1),
        f.AssistantTextDelta(1, 0, "I look."),
        f.AssistantTextComplete(1, 0, "I look."),
        f.AssistantToolCallProposed(1, "c1", "bash", {"command": "ls"}, block_index=1),
        f.AssistantTextDelta(1, 2, " And th"),
        f.TurnFailed(1, "broken", "it broke", False),
        f.RunFailed("model_broken", "it broke", False, 0),
    ]
    use, message = [frame for fact in facts for frame in codec.feed(fact)]
    assert message["content"] == [{"type": "text", "text": "I look."}, use]
    result = codec.result()
    assert result["last_assistant_text"] == "I look. And th"
    assert result["turns"] == 0


def test_so_does_one_whose_end_no_fact_tells_of() -> None:
    codec = StreamJson("chat_1", FrameOptions(hook_events=True, user_messages=True))
    held = codec.user("go")
    for fact in (f.AssistantTextDelta(1, 0, "Half"), f.AssistantTextComplete(1, 0, "Half")):
        held += codec.feed(fact)
    assert [frame["type"] for frame in held] == ["user"]
    (message,) = codec.fail("store", "the disk is full")
    assert message["content"] == [{"type": "text", "text": "Half"}]
    assert codec.result()["last_assistant_text"] == "Half"
    assert codec.fail("store", "the disk is full") == []


def test_a_message_that_was_to_wait_is_told_of_before_the_end() -> None:
    codec = StreamJson("chat_1", FrameOptions(hook_events=True, user_messages=True))
    assert codec.user("go") == []
    assert [frame["type"] for frame in codec.fail("store", "the disk is full")] == ["user"]


def test_thinking_is_in_the_message_as_it_was_shown() -> None:
    thought = ThinkingPiece(turn_index=1, after=0, block_index=0, text="Hm.")
    blocks = [MessageBlock("thinking", 0), MessageBlock("text", 1)]
    for partial in (True, False):
        codec = StreamJson("chat_1", FrameOptions(partial_messages=partial))
        codec.feed(f.TurnStarted(1, "m", "p", 1))
        if partial:
            codec.note(thought)
        codec.feed(f.AssistantTextDelta(1, 1, "Yes."))
        codec.feed(
            f.AssistantMessageComplete(
                1, "m", "p", blocks, Usage(), "end_turn", None, None, 1, None
            )
        )
        (message,) = codec.feed(f.TurnCompleted(1, 0, 0, 0, 0, 1, 0, "end_turn"))
        thinking = [{"type": "thinking", "thinking": "Hm."}] if partial else []
        assert message["content"] == [*thinking, {"type": "text", "text": "Yes."}]


def test_a_large_call_is_shown_whole(shell: Shell) -> None:
    place = {"text": "a" * 300_000, "list": list(range(2000))}
    model = shell.stage.scenario([call("acting", "c1", act="x", place=place)], [say("Done.")])
    said = shell(
        "-p", "go", "--model", model, "--sandbox", "none", "--output-format", "stream-json",
        tools=[Acting()],
    )  # fmt: skip
    frames = said.frames()
    (use,) = [frame for frame in frames if frame["type"] == "tool_use"]
    message = next(frame for frame in frames if frame["type"] == "message")
    assert use["input"] == {"act": "x", "place": place}
    assert message["content"] == [use]


def _complete() -> list[Fact]:
    blocks = [MessageBlock("text", 0)]
    return [
        f.AssistantMessageComplete(1, "m", "p", blocks, Usage(), "end_turn", None, None, 1, None),
        f.TurnCompleted(1, 0, 0, 0, 0, 1, 0, "end_turn"),
    ]
