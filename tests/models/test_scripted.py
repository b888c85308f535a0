"""The scripted model, frame by frame, and the recorder that writes what it plays."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract.conversation import Block, Message, Text, Thinking, ToolCall, ToolResult
from batten.contract.errors import CallerError, ProviderError
from batten.contract.facts.assistant import StopReason, Usage
from batten.models.contract import (
    BlockDone,
    Done,
    Model,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ToolCallDelta,
)
from batten.models.recorder import ScenarioRecorder
from batten.models.scenario import (
    SCENARIO_SCHEMA,
    CallTool,
    Delay,
    End,
    Fail,
    Frame,
    Metadata,
    SayText,
    Scenario,
    Statement,
    WaitForUser,
    encode,
    load,
)
from batten.models.scripted import ScriptedModel, open_scripted
from batten.redact.redactor import Redactor

SCENARIOS = Path(__file__).parent / "scenarios"


def recording(path: str, redactor: Redactor, **more: str) -> ScenarioRecorder:
    return ScenarioRecorder(path, redactor=redactor, workspace="/nowhere", warn=print, **more)


def scenario(*frames: tuple[Statement, ...], name: str = "s", **fields: Any) -> Scenario:
    return Scenario(
        schema_version=SCENARIO_SCHEMA,
        id=name,
        description="",
        metadata=Metadata(recorded_at="", tools_expected=()),
        frames=tuple(
            Frame(index=index, statements=statements) for index, statements in enumerate(frames)
        ),
        **fields,
    )


def user(*blocks: Block) -> Message:
    return Message("user", blocks or (Text("go"),))


def request(*messages: Message) -> ModelRequest:
    return ModelRequest(model="", messages=messages or (user(),))


async def collect(stream: AsyncIterator[ModelEvent]) -> list[ModelEvent]:
    return [event async for event in stream]


async def play(model: Model, *messages: Message) -> tuple[Message, StopReason]:
    """One whole message, as a loop would put it into the conversation."""
    events = await collect(model.stream(request(*messages)))
    done = events[-1]
    assert isinstance(done, Done)
    blocks = tuple(event.content for event in events if isinstance(event, BlockDone))
    return Message("assistant", blocks), done.stop_reason


async def failure(model: Model, *messages: Message) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await collect(model.stream(request(*messages)))
    return caught.value


def result(call: str, name: str = "read", *, is_error: bool = False, output: str = "") -> Message:
    return user(ToolResult(call, name, output, is_error))


async def test_frames_are_played_one_message_at_a_time() -> None:
    path = str(SCENARIOS / "count-lines.json")
    model = open_scripted(path)
    assert (model.provider, model.name, model.native_schema) == ("scripted", path, False)
    first = await play(model, user())
    assert first == (
        Message(
            "assistant",
            (
                Text("I will read the notes and count their lines, one by one."),
                ToolCall("call-read", "read", {"file_path": "notes.txt"}),
                ToolCall("replay_count-lines_000_002", "bash", {"command": "wc -l notes.txt"}),
            ),
        ),
        "tool_use",
    )
    second = await play(model, user(), first[0], result("call-read"))
    assert second == (Message("assistant", (Text("Three lines."),)), "end_turn")
    await model.aclose()


async def test_events_come_in_the_order_of_the_message_and_end_in_one_done() -> None:
    model = ScriptedModel(
        scenario((SayText(text="one two three four five"), CallTool(tool="t", input={"a": 1})))
    )
    assert await collect(model.stream(request())) == [
        TextDelta(0, "one two three four "),
        TextDelta(0, "five"),
        BlockDone(0, Text("one two three four five")),
        ToolCallDelta(1, "replay_s_000_001", "t", '{"a":1}'),
        BlockDone(1, ToolCall("replay_s_000_001", "t", {"a": 1})),
        Done("tool_use", Usage()),
    ]


@given(st.text() | st.text("ab \n\t", min_size=200, max_size=2000))
def test_deltas_joined_are_the_text_and_none_is_long(text: str) -> None:
    model = ScriptedModel(scenario((SayText(text=text),)))
    events = asyncio.run(collect(model.stream(request())))
    deltas = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(deltas) == text
    assert all(0 < len(delta) <= 512 for delta in deltas)
    assert [event.content for event in events if isinstance(event, BlockDone)] == (
        [Text(text)] if text else []
    )


async def test_timed_text_comes_character_by_character() -> None:
    model = ScriptedModel(scenario((SayText(text="äb c", stream_ms=7),)))
    events = await collect(model.stream(request()))
    assert [event.text for event in events if isinstance(event, TextDelta)] == list("äb c")


@pytest.mark.parametrize(
    ("statements", "stop"),
    [
        ((SayText(text="hi"),), "end_turn"),
        ((CallTool(tool="t"),), "tool_use"),
        ((CallTool(tool="t"), End(reason="complete")), "end_turn"),
        ((CallTool(tool="t"), WaitForUser()), "end_turn"),
        ((SayText(text="hi"), End(reason="limit_exceeded")), "max_tokens"),
        ((End(reason="aborted"),), "aborted"),
        ((), "end_turn"),
    ],
)
async def test_an_explicit_ending_wins_over_tool_calls(
    statements: tuple[Statement, ...], stop: StopReason
) -> None:
    message, reason = await play(ScriptedModel(scenario(statements)))
    assert reason == stop
    assert len(message.tool_calls()) == sum(isinstance(item, CallTool) for item in statements)


@pytest.mark.parametrize("given_input", [None, "text", [1], 3])
async def test_input_that_is_no_object_becomes_no_arguments(given_input: object) -> None:
    message, _ = await play(ScriptedModel(scenario((CallTool(tool="t", input=given_input),))))
    assert message.tool_calls()[0].input == {}


def expecting(expected: Any) -> ScriptedModel:
    return ScriptedModel(
        scenario(
            (CallTool(tool="read", id="c", expected_result=expected),),
            (SayText(text="next"),),
        ),
        aliases={"read": "read_file", "Read": "read_file"},
    )


CALLED = Message("assistant", (ToolCall("c", "read", {}),))


@pytest.mark.parametrize(
    ("expected", "results"),
    [
        ("success", (result("c"),)),
        ("error", (result("c", is_error=True),)),
        ("any", ()),
        (None, (result("c", is_error=True),)),
        ("success", (result("c", is_error=True), result("c"))),
        ("error", (result("c"), result("c", is_error=True))),
        ("success", (result("c", "read_file"),)),
        ("success", (result("c", "Read"),)),
    ],
)
async def test_the_script_goes_on_when_the_latest_result_is_the_expected_one(
    expected: str | None, results: tuple[Message, ...]
) -> None:
    message, _ = await play(expecting(expected), user(), CALLED, *results)
    assert message.text() == "next"


@pytest.mark.parametrize(
    ("expected", "results", "actual"),
    [
        ("success", (), "no result"),
        ("error", (), "no result"),
        ("success", (result("c", is_error=True, output="Error: not found"),), "error: not found"),
        ("error", (result("c", output="a line"),), "success: a line"),
        ("success", (result("other"),), "no result"),
        ("success", (result("c", "write_file"),), "no result"),
        ("success", (result("c"), result("c", is_error=True)), "error"),
    ],
)
async def test_another_result_ends_the_turn_and_the_frame_stays(
    expected: str, results: tuple[Message, ...], actual: str
) -> None:
    model = expecting(expected)
    for _ in range(2):
        error = await failure(model, user(), CALLED, *results)
        assert error.code == "scenario_mismatch"
        assert not error.retriable
        assert error.message == (
            "frames[0].statements[0] of scenario s: read (c) should have ended in "
            f"{expected}, but there is {actual}"
        )
    correct = result("c", is_error=expected == "error")
    message, _ = await play(model, user(), CALLED, *results, correct)
    assert message.text() == "next"


async def test_the_results_of_the_last_frame_are_checked_as_well() -> None:
    model = ScriptedModel(scenario((CallTool(tool="read", id="c", expected_result="success"),)))
    assert (await failure(model, user(), CALLED)).code == "scenario_mismatch"


async def test_past_the_last_frame_the_model_says_that_it_is_complete() -> None:
    model = ScriptedModel(scenario((SayText(text="only"),), name="short"))
    said = Message("assistant", (Text("only"),))
    for conversation in ((user(), said, user()), (user(), said, user(), said, user())):
        message, stop = await play(model, *conversation)
        assert (message.text(), stop) == ("Scripted scenario short complete.", "end_turn")


@pytest.mark.parametrize(
    ("message", "shown"),
    [("Busy.", "Busy. Try again."), ("Busy. Try again. Soon.", "Busy. Try again. Soon.")],
)
async def test_a_transient_error_may_be_tried_again(message: str, shown: str) -> None:
    model = ScriptedModel(scenario((Fail(type="transient", message=message),)))
    error = await failure(model)
    assert (error.message, error.retriable, error.provider) == (shown, True, "scripted")
    assert (await failure(model)).retriable


async def test_a_fatal_error_is_final_and_keeps_its_words() -> None:
    error = await failure(ScriptedModel(scenario((Fail(type="fatal", message="No."),))))
    assert (error.message, error.retriable) == ("No.", False)


async def test_an_error_with_a_number_of_times_passes_after_them() -> None:
    model = ScriptedModel(
        scenario((Fail(type="transient", message="Busy.", times=2), SayText(text="there")))
    )
    await failure(model)
    await failure(model)
    message, _ = await play(model)
    assert message.text() == "there"


async def test_text_before_an_error_has_been_streamed() -> None:
    model = ScriptedModel(scenario((SayText(text="so far"), Fail(type="fatal", message="No."))))
    stream = model.stream(request())
    events = [await anext(stream), await anext(stream)]
    with pytest.raises(ProviderError):
        await anext(stream)
    assert events == [TextDelta(0, "so far"), BlockDone(0, Text("so far"))]


@pytest.mark.parametrize(
    "endless", [Delay(ms=10**9), SayText(text="later", stream_ms=10**9)], ids=["delay", "text"]
)
async def test_cancellation_ends_a_delay_and_a_slow_text(endless: Statement) -> None:
    model = ScriptedModel(scenario((SayText(text="now"), endless)))
    waiting = asyncio.Event()

    async def consume() -> None:
        async for event in model.stream(request()):
            if isinstance(event, BlockDone):
                waiting.set()

    task = asyncio.create_task(consume())
    await asyncio.wait_for(waiting.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)


async def test_cancellation_takes_hold_between_two_characters() -> None:
    model = ScriptedModel(scenario((SayText(text="x" * 100_000, stream_ms=0),)))
    seen: list[ModelEvent] = []

    async def consume() -> None:
        async for event in model.stream(request()):
            seen.append(event)
            if len(seen) == 3:
                task.cancel()

    task = asyncio.create_task(consume())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(seen) == 3


async def test_a_conversation_that_begins_with_a_childs_prompt_plays_the_childs_file(
    tmp_path: Path,
) -> None:
    child = scenario((SayText(text="from the child"),), name="child")
    parent = scenario((SayText(text="from the parent"),), children={"Look it up.": "child.json"})
    (tmp_path / "child.json").write_bytes(encode(child))
    (tmp_path / "parent.json").write_bytes(encode(parent))
    model = open_scripted(str(tmp_path / "parent.json"))
    assert (await play(model, user(Text("Look it up.\n"))))[0].text() == "from the child"
    assert (await play(model, user(Text("Look up."))))[0].text() == "from the parent"


def test_a_scenario_that_is_its_own_child_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "loop.json"
    path.write_bytes(encode(scenario(children={"again": "./loop.json"})))
    with pytest.raises(CallerError, match="its own child"):
        open_scripted(str(path))


words = st.text(min_size=1, max_size=40).filter(lambda text: text.strip() != "")
inputs = st.dictionaries(
    st.text(max_size=5), st.integers(0, 9) | st.text(max_size=5), max_size=3
).filter(lambda given: Redactor().value(given)[0] == given)
"""Arguments without a secret: a recording replaces those."""
texts = st.builds(SayText, text=words)
calls = st.builds(CallTool, tool=words, input=inputs, expected_result=st.just("any"))
endings = st.sampled_from(
    [End(reason="complete"), End(reason="limit_exceeded"), End(reason="aborted")]
)


@st.composite
def frames(draw: st.DrawFn) -> tuple[Statement, ...]:
    said: list[Statement] = draw(st.lists(texts | calls, max_size=4))
    has_calls = any(isinstance(item, CallTool) for item in said)
    if not has_calls or draw(st.booleans()):
        said.append(draw(endings))
    return tuple(said)


def with_ids(script: Scenario) -> Scenario:
    """The scenario with the id of each call written out."""
    return scenario(
        *(
            tuple(
                CallTool(
                    tool=item.tool,
                    input=item.input,
                    id=f"call_{frame.index}_{number}",
                    expected_result=item.expected_result,
                )
                if isinstance(item, CallTool)
                else item
                for number, item in enumerate(frame.statements)
            )
            for frame in script.frames
        )
    )


async def record(script: Scenario, path: Path) -> list[Message]:
    """Play a scenario to its end while it is recorded; the messages it gave."""
    model = ScriptedModel(script)
    recorder = recording(str(path), redactor=Redactor(), model="m", recorded_at="now")
    conversation = [user()]
    for _ in script.frames:
        message, stop = await play(model, *conversation)
        recorder.observe(message, stop)
        results = [ToolResult(call.id, call.name, "ok") for call in message.tool_calls()]
        conversation += [message, user(*results)]
    return [message for message in conversation if message.role == "assistant"]


@given(st.lists(frames(), min_size=1, max_size=4))
def test_recording_what_is_played_gives_the_script_and_the_same_messages_again(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[Statement, ...]]
) -> None:
    script = with_ids(scenario(*drawn))
    path = tmp_path_factory.mktemp("recorded") / "s.json"
    messages = asyncio.run(record(script, path))
    recorded = load(str(path))
    assert recorded.frames == script.frames
    assert asyncio.run(record(recorded, path)) == messages


def test_a_recording_is_whole_after_every_message(tmp_path: Path) -> None:
    path = tmp_path / "tidy up.json"
    recorder = recording(str(path), redactor=Redactor(), model="m-1", recorded_at="then")
    calls = (ToolCall("c1", "bash", {"command": "ls"}), ToolCall("c2", "read", {}))
    recorder.observe(Message("assistant", (Thinking("hm", "p"), Text(""), *calls)), "tool_use")
    first = load(str(path))
    assert first == Scenario(
        schema_version=SCENARIO_SCHEMA,
        id="tidy up",
        description="Recorded from a live run.",
        metadata=Metadata(
            recorded_from="live",
            recorded_at="then",
            model_original="m-1",
            tools_expected=("bash", "read"),
        ),
        frames=(
            Frame(
                index=0,
                statements=(
                    CallTool(tool="bash", input={"command": "ls"}, id="c1", expected_result="any"),
                    CallTool(tool="read", input={}, id="c2", expected_result="any"),
                ),
            ),
        ),
    )
    recorder.observe(Message("assistant", (Text("Done."),)), "end_turn")
    assert load(str(path)).frames == (
        *first.frames,
        Frame(index=1, statements=(SayText(text="Done."), End(reason="complete"))),
    )
    assert [entry.name for entry in tmp_path.iterdir()] == ["tidy up.json"]


@pytest.mark.parametrize(
    ("stop", "error", "last"),
    [
        ("end_turn", None, End(reason="complete")),
        ("stop_sequence", None, End(reason="complete")),
        ("tool_use", None, End(reason="complete")),
        ("max_tokens", None, End(reason="limit_exceeded")),
        ("aborted", None, End(reason="aborted")),
        ("refusal", None, Fail(type="fatal", message="The model stopped: refusal.")),
        ("other", "gone", Fail(type="fatal", message="gone")),
    ],
)
def test_a_recorded_message_ends_as_the_live_one_did(
    tmp_path: Path, stop: StopReason, error: str | None, last: Statement
) -> None:
    recorder = recording(str(tmp_path / "r.json"), redactor=Redactor())
    recorder.observe(Message("assistant", (Text("part"),)), stop, error)
    assert recorder.scenario().frames[0].statements == (SayText(text="part"), last)


def test_a_call_that_gave_no_message_is_recorded_as_its_error(tmp_path: Path) -> None:
    recorder = recording(str(tmp_path / "r.json"), redactor=Redactor())
    recorder.observe(None, "other", "no route to the model")
    assert load(str(tmp_path / "r.json")).frames == (
        Frame(index=0, statements=(Fail(type="fatal", message="no route to the model"),)),
    )


def test_nothing_recorded_holds_a_secret(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    recorder = recording(str(path), redactor=Redactor(["hunter2"]))
    secret = {"hunter2": ["a hunter2", {"deep": "hunter2"}], "n": 1, "password": "swordfish"}
    blocks = (
        Text("hunter2"),
        ToolCall("c-hunter2", "t-hunter2", secret),
        ToolCall("d", "t", {}, "{hunter2"),
    )
    recorder.observe(Message("assistant", blocks), "other", "hunter2 is wrong")
    assert b"hunter2" not in path.read_bytes()
    assert b"swordfish" not in path.read_bytes()
    assert load(str(path)).metadata.tools_expected == ("t-<redacted>", "t")
    statements = load(str(path)).frames[0].statements
    assert [item.input for item in statements if isinstance(item, CallTool)] == [
        {
            "<redacted>": ["a <redacted>", {"deep": "<redacted>"}],
            "n": 1,
            "password": "<redacted>",
        },
        "{<redacted>",
    ]


def test_what_is_no_regular_file_is_not_recorded_onto(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    recorder = recording(str(tmp_path / "pipe"), redactor=Redactor())
    with pytest.raises(CallerError, match="not a regular file"):
        recorder.check()


def test_a_place_that_cannot_be_written_is_a_callers_error(tmp_path: Path) -> None:
    recorder = recording(str(tmp_path / "none" / "r.json"), redactor=Redactor())
    with pytest.raises(CallerError, match="cannot record"):
        recorder.observe(Message("assistant", ()), "end_turn")
