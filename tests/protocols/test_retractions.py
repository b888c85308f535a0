"""An answer that was taken back, in every protocol: clients end with the same view."""

from collections.abc import Sequence
from typing import Any

import msgspec

from batten.client import events
from batten.client.unfolding import RunUnfolding
from batten.contract import facts as f
from batten.contract.envelope import Envelope
from batten.contract.facts import Fact
from batten.contract.facts.assistant import MessageBlock, Usage
from batten.contract.notes import ThinkingPiece
from batten.protocols.acp.frames import AcpFrames
from batten.protocols.claude.frames import ClaudeFrames
from batten.protocols.heddle.frames import Correlation, SendFrames
from batten.protocols.heddle.transcript import Transcript
from batten.protocols.heddle.versions import Spoken
from batten.protocols.maestro import outgoing
from batten.protocols.maestro.frames import MaestroFrames
from batten.protocols.maestro.state import Conversation
from batten.protocols.stream_json import FrameOptions, StreamJson
from batten.serve.terminal.printers import PlainPrinter
from batten.serve.terminal.transcript import Transcript as Timeline

RUN = "run_01J0000000E008000000000000"
QUEUED = f.RunQueued("agent_loop", "m", "p", "/w", "in_place", None)
STARTED = f.RunStarted("w", "")
FINISHED = f.RunFinished("completed", 2, 0, 1)
BROKEN = "p: the connection ended"


def turn(index: int) -> Fact:
    return f.TurnStarted(index, "m", "p", 9)


def said(index: int, text: str) -> list[Fact]:
    return [f.AssistantTextDelta(index, 0, text), f.AssistantTextComplete(index, 0, text)]


def proposed(index: int, call: str) -> Fact:
    return f.AssistantToolCallProposed(index, call, "bash", {"command": "true"}, block_index=1)


def whole(index: int, *calls: str) -> list[Fact]:
    blocks = [MessageBlock("text", 0)]
    blocks += [MessageBlock("tool_call", 1, tool_call_id=call) for call in calls]
    stop: Any = "tool_use" if calls else "end_turn"
    return [f.AssistantMessageComplete(index, "m", "p", blocks, Usage(1, 1), stop, 0, None, 1, 1)]


def used(index: int, call: str) -> list[Fact]:
    return [
        f.PolicyToolDecided(call, "bash", "allow", "", "rules"),
        f.ToolInvoked(call, "bash", "shell", turn_index=index),
        f.ToolCompleted(call, "bash", "shell", 1, summary="ok", output="ok"),
        f.TurnCompleted(index, 1, 1, 0, 0, 1, 1, "tool_use"),
    ]


def broken(index: int, call: str) -> list[Fact]:
    """An attempt that is taken back."""
    return [
        *said(index, "Half of "),
        proposed(index, call),
        f.AssistantTextDelta(index, 2, "an ans"),
        f.AssistantRetracted(index, BROKEN, [call]),
        f.ErrorUpstream("p", None, BROKEN, True, 1, 11, category="network", retry_delay_ms=500),
    ]


def story(*, breaks: bool) -> list[Fact]:
    """Two turns, each of whose calls may break off once."""

    def attempt(index: int, call: str) -> list[Fact]:
        return broken(index, call) if breaks else []

    return [
        *(QUEUED, STARTED, f.UserMessage(0, "go"), turn(1)),
        *attempt(1, "v1"),
        *(*said(1, "I look."), proposed(1, "c1"), *whole(1, "c1"), *used(1, "c1"), turn(2)),
        *attempt(2, "v2"),
        *(*said(2, "All well."), *whole(2), f.AssistantFinalAnswer(2, "All well."), FINISHED),
    ]


def envelopes(facts: Sequence[Fact]) -> list[Envelope]:
    return [
        Envelope(
            event_id=f"evt_01J0000000E0080000000{number:05}",
            run_id=RUN,
            sequence=number,
            occurred_at="2026-01-02T03:04:05.000Z",
            type=fact.type,
            data=fact,
        )
        for number, fact in enumerate(facts)
    ]


def test_print_mode_takes_back_pieces_and_calls_and_its_messages_are_the_same() -> None:
    views: list[list[Any]] = []
    for breaks in (True, False):
        codec = StreamJson("s", FrameOptions(partial_messages=True))
        frames = [frame for fact in story(breaks=breaks) for frame in codec.feed(fact)]
        views.append([one for one in frames if one["type"] == "message"] + [codec.result()])
        void = [one for one in frames if one.get("subtype") == "message_retracted"]
        expected = [
            {
                "type": "system",
                "subtype": "message_retracted",
                "tool_use_ids": [call],
                "reason": BROKEN,
            }
            for call in ("v1", "v2")
        ]
        assert void == (expected if breaks else [])
        if breaks:
            place = frames.index(void[0])
            assert [one["type"] for one in frames[:place]] == [
                "content_block_delta",
                "tool_use",
                "content_block_delta",
            ]
            retry = frames[place + 1]
            assert (retry["subtype"], retry["attempt"], retry["max_retries"]) == (
                "api_retry",
                1,
                10,
            )
    assert views[0] == views[1]


def test_a_run_that_ends_after_a_retraction_shows_no_void_text() -> None:
    codec = StreamJson("s")
    facts = [QUEUED, STARTED, turn(1), *broken(1, "v"), f.RunCancelled("operator", "enough")]
    frames = [frame for fact in facts for frame in codec.feed(fact)]
    assert [one["type"] for one in frames] == ["tool_use", "system", "system"]
    assert "last_assistant_text" not in codec.result()


def test_claude_code_gets_the_new_answer_under_a_new_message_id() -> None:
    codec = ClaudeFrames("chat_01J0000000E008000000000000", FrameOptions(partial_messages=True))
    frames = [frame for one in envelopes(story(breaks=True)) for frame in codec.feed(one)]
    starts = [
        one["event"]["message"]["id"]
        for one in frames
        if one["type"] == "stream_event" and one["event"]["type"] == "message_start"
    ]
    void = [one["message_id"] for one in frames if one.get("subtype") == "message_retracted"]
    whole_ones = [one["message"]["id"] for one in frames if one["type"] == "assistant"]
    assert [starts[0], starts[2]] == void
    assert [starts[1], starts[3]] == whole_ones
    assert len(set(starts)) == 4


def test_claude_code_without_pieces_sees_only_the_retry() -> None:
    texts: list[Any] = []
    for breaks in (True, False):
        codec = ClaudeFrames("chat_01J0000000E008000000000000", FrameOptions())
        frames = [frame for one in envelopes(story(breaks=breaks)) for frame in codec.feed(one)]
        retries = [one.get("max_retries") for one in frames if one["type"] == "system"]
        assert retries == ([10, 10] if breaks else [])
        messages = [one["message"]["content"] for one in frames if one["type"] == "assistant"]
        texts.append([messages, codec.result()["result"]])
    assert texts[0] == texts[1]


def test_heddle_says_that_the_deltas_are_void_and_its_result_is_the_same() -> None:
    results: list[Any] = []
    for breaks in (True, False):
        send = SendFrames("1", Correlation(session_id="s"), Spoken("0.2.0", (0, 2, 0)))
        shown = [event.event for fact in story(breaks=breaks) for event in send.feed(fact)]
        errors = [one for one in map(msgspec.to_builtins, shown) if one["event"] == "error"]
        assert [(one["code"], one["retryable"]) for one in errors] == (
            [("provider_error", True)] * 2 if breaks else []
        )
        results.append(send.result())
    assert results[0] == results[1]


def test_heddles_transcript_holds_the_whole_answers_only() -> None:
    lines: list[list[Any]] = []
    for breaks in (True, False):
        transcript = Transcript()
        written = b"".join(transcript.feed(one) for one in envelopes(story(breaks=breaks)))
        lines.append([msgspec.json.decode(line) for line in written.splitlines()])
    assert lines[0] == lines[1]


def test_maestro_starts_the_response_again_for_everybody_who_folds_it() -> None:
    facts = story(breaks=True)
    frames, state = MaestroFrames(), Conversation()
    client = RunUnfolding(_unused)
    heard: list[events.Event | None] = []
    texts: dict[str, str] = {}
    for envelope in envelopes(facts):
        for message in frames.feed(envelope):
            state.hear(message)
            heard.append(client.take(message))
        if state.state.current_response is not msgspec.UNSET:
            texts[envelope.type] = state.state.current_response.text
    assert texts["assistant.retracted"] == ""
    assert texts["assistant.final_answer"] == "All well."
    assert sum(isinstance(one, events.TextRetracted) for one in heard) == 2
    assert sum(isinstance(one, events.RunStarted) for one in heard) == 1
    assert client.result is not None
    assert client.result.text == "All well."


def test_maestro_repeats_text_after_the_last_call_that_still_holds() -> None:
    frames = MaestroFrames()
    again = f.UserMessage(1, "That does not fit.")
    facts = [QUEUED, STARTED, turn(1), *said(1, "First."), *whole(1), again, turn(2)]
    for envelope in envelopes(facts):
        frames.feed(envelope)
    sent = [one for envelope in envelopes(broken(2, "v")) for one in frames.feed(envelope)]
    place = next(i for i, one in enumerate(sent) if isinstance(one, outgoing.ResponseStart))
    repeated = sent[place + 1]
    assert isinstance(repeated, outgoing.ResponseChunk)
    assert repeated.content == "First."


async def _unused(_: object) -> None:
    raise AssertionError("nothing is asked")


def test_acp_tells_a_live_client_and_replays_only_what_holds() -> None:
    live = AcpFrames("/w", lambda _: None)
    updates = [one for envelope in envelopes(story(breaks=True)) for one in live.feed(envelope)]
    shown = [msgspec.to_builtins(one) for one in updates]
    texts: dict[str, str] = {}
    for one in shown:
        if one["sessionUpdate"] == "agent_message_chunk":
            place = one["messageId"].removeprefix(f"{RUN}.")
            texts[place] = texts.get(place, "") + one["content"]["text"]
    assert texts["1.0"] == "Half of "
    assert "starts again" in texts["1.void.0"]
    assert (texts["1.0.1"], texts["2.0.2"]) == ("I look.", "All well.")
    ended = [one for one in shown if one.get("status") == "failed"]
    assert [one["toolCallId"] for one in ended] == [f"{RUN}:v1", f"{RUN}:v2"]

    replays: list[Any] = []
    for breaks in (True, False):
        past = AcpFrames("/w", lambda _: None, replays=True)
        updates = [one for each in envelopes(story(breaks=breaks)) for one in past.feed(each)]
        plain = [msgspec.to_builtins(one) for one in updates]
        replays.append([{**one, "messageId": None} for one in plain])
    assert replays[0] == replays[1]


def test_a_thought_after_a_retraction_waits_for_it() -> None:
    codec = StreamJson("s", FrameOptions(partial_messages=True))
    for fact in (QUEUED, STARTED, turn(1)):
        codec.feed(fact)
    early = ThinkingPiece(turn_index=1, after=2, block_index=0, text="hm", attempt=1)
    assert codec.note(early) == []
    codec.feed(f.AssistantTextDelta(1, 0, "Half"))
    frames = codec.feed(f.AssistantRetracted(1, BROKEN, []))
    assert [one["type"] for one in frames] == ["system", "content_block_delta"]


def test_the_timeline_counts_retries_and_says_what_is_void() -> None:
    timeline, printer = Timeline(), PlainPrinter(color=False, times=False)
    lines = [line for one in envelopes(story(breaks=True)) for line in timeline.lines(one)]
    rows = [printer.rows(line) for line in lines]
    assert "↻ the answer so far is void\n" in rows
    assert f"↻ retry 1 of 10 in 500 ms: {BROKEN}\n" in rows


def test_heddle_shows_calls_that_overlap_one_after_the_other() -> None:
    send = SendFrames("1", Correlation(session_id="s"), Spoken("0.2.0", (0, 2, 0)))

    def begin(call: str) -> Fact:
        return f.ToolInvoked(call, "read_file", "file_read", turn_index=1)

    def end(call: str) -> Fact:
        return f.ToolCompleted(call, "read_file", "file_read", 1, output=call)

    facts = [begin("a"), begin("b"), begin("c"), end("b"), end("a"), end("c"), begin("d"), end("d")]
    shown = [msgspec.to_builtins(event.event) for fact in facts for event in send.feed(fact)]
    assert [one.get("result_preview", "begins") for one in shown] == [
        *("begins", "a", "begins", "b", "begins", "c", "begins", "d"),
    ]
