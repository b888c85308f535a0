"""Golden transcripts of each flag that changes what is written, replayed with a model over HTTP."""

import os
import signal
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from tests.agent.acting import Acting
from tests.agent.stage import call, fail, say
from tests.cli.invoking import Json, Said, Shell, serving
from tests.models.server import Fault, Reply, answer, refusal
from tests.models.wire import (
    anthropic_block,
    anthropic_call_block,
    anthropic_end,
    anthropic_start,
    anthropic_text_block,
    anthropic_turn,
    sse,
)

from .transcripts import compare, compare_text, golden, normalised, set_prices

MODEL = ["--model", "anthropic/m", "--sandbox", "none"]
FRAMES = ["--output-format", "stream-json"]
STREAM = ["--input-format", "stream-json"]


def said(text: str = "", *calls: tuple[str, str, dict[str, Any]]) -> Reply:
    return answer(anthropic_turn(text, calls))


def act(name: str, call_id: str = "c1") -> tuple[str, str, dict[str, Any]]:
    return call_id, "acting", {"act": name}


def thought_through() -> Reply:
    """Thinking, then words, then a call, then words again: everything that comes in pieces."""
    thinking = anthropic_block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        *({"type": "thinking_delta", "thinking": word} for word in ("Let me ", "see. ", "Yes.")),
        {"type": "signature_delta", "signature": "c2ln"},
    )
    blocks = [
        *anthropic_text_block(1, "I look.", 4),
        *anthropic_call_block(2, act("now"), 7),
        *anthropic_text_block(3, "Then more.", 5),
        *anthropic_call_block(4, ("c2", "acting", {"act": "later", "count": 2}), 9),
    ]
    end = anthropic_end("tool_use")
    return answer(sse(anthropic_start(), *thinking, *blocks, *end, named=True))


def unreadable() -> Reply:
    """A call whose arguments are no JSON, and one that has none."""
    start: Json = {"type": "tool_use", "id": "c1", "name": "acting", "input": {}}
    garbage = {"type": "input_json_delta", "partial_json": '{"act": no'}
    empty: Json = {"type": "tool_use", "id": "c2", "name": "acting", "input": {}}
    blocks = [*anthropic_block(0, start, garbage), *anthropic_block(1, empty)]
    return answer(sse(anthropic_start(), *blocks, *anthropic_end("tool_use"), named=True))


def refused() -> Reply:
    words = anthropic_text_block(0, "I will not.")
    return answer(sse(anthropic_start(), *words, *anthropic_end("refusal"), named=True))


def users(*contents: object) -> bytes:
    lines = ({"type": "user", "content": content} for content in contents)
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


class Case(Struct, frozen=True):
    replies: list[Reply]
    flags: Sequence[str]
    code: int = 0
    stdin: bytes = b""


DENY = ["--deny", "acting"]
ONE = ["-p", "go"]
BUSY = refusal(529, {"error": {"type": "overloaded_error", "message": "busy"}}, retry_after="0")
WRONG_KEY = refusal(401, {"error": {"type": "authentication_error", "message": "no such key"}})
SCHEMA = ["--json-schema", '{"type": "object", "required": ["count"]}']

CASES: dict[str, Case] = {
    "two_messages": Case(
        [said("First.", act("one")), said("First, done."), said("Second.")],
        STREAM, stdin=users("one", "two"),
    ),
    "replayed_messages": Case(
        [said("First."), said("Second.")],
        [*STREAM, "--replay-user-messages"],
        stdin=users("one", [{"type": "text", "text": "t"}, {"type": "text", "text": "wo"}]),
    ),
    "replayed_prompt": Case([said("Well.")], [*ONE, "--replay-user-messages"]),
    "partial_messages": Case(
        [thought_through(), said("Well.")], [*ONE, "--include-partial-messages"]
    ),
    "whole_messages": Case([thought_through(), said("Well.")], ONE),
    "interrupted": Case(
        [[Fault.STALL]], STREAM, 124,
        users("go") + b'{"type":"control","subtype":"interrupt"}\n',
    ),
    "malformed": Case([said("First.", act("one")), said("Done.")], STREAM, 64,
                      users("go") + b"{broken\n" + users("never")),
    "claude_envelope": Case(
        [said("First.")], STREAM, 64,
        users("go") + b'{"type":"user","message":{"role":"user","content":"two"}}\n',
    ),
    "malformed_at_once": Case([said("never")], STREAM, 64, b"[]\n"),
    "empty_input": Case([said("never")], STREAM, 66),
    "blank_input": Case([said("never")], [*STREAM, "-p", "-"], 66, b"\n \n"),
    "failed_then_well": Case([WRONG_KEY, said("Well.")], STREAM, 0, users("one", "two")),
    "well_then_failed": Case([said("Well."), WRONG_KEY], STREAM, 1, users("one", "two")),
    "session_id": Case(
        [said("Well.")], [*ONE, "--session-id", "01890a5d-ac96-774b-bcce-b302099a8057"]
    ),
    "no_save": Case([said("Well.")], [*ONE, "--no-save"]),
    "fail_on_denied": Case(
        [said("", act("x")), said("Then not.")], [*ONE, *DENY, "--fail-on", "denied"], 2
    ),
    "fail_on_tool_error": Case(
        [said("", act("raise")), said("Then not.")], [*ONE, "--fail-on", "denied,tool_error"], 2
    ),
    "tool_error_forgiven": Case(
        [said("", act("raise")), said("Then not.")], [*ONE, "--fail-on", "denied"]
    ),
    "asked_of_nobody": Case(
        [said("", ("c1", "bash", {"command": "touch made"})), said("Then not.")], ONE
    ),
    "auto_allow": Case(
        [said("", ("c1", "bash", {"command": "echo hi"})), said("Well.")], [*ONE, "--auto-allow"]
    ),
    "no_permissions": Case(
        [said("", ("c1", "bash", {"command": "echo hi"})), said("Well.")],
        [*ONE, "--no-permissions"],
    ),
    "plan_mode": Case(
        [said("", ("c1", "bash", {"command": "touch made"})), said("Then not.")],
        [*ONE, "--permission-mode", "plan", "--allow", "bash"],
    ),
    "no_tools": Case([said("Well.")], [*ONE, "--no-tools"]),
    "bare": Case([said("Well.")], [*ONE, "--bare"]),
    "structured_native": Case([said('{"count": 3}')], [*ONE, *SCHEMA]),
    "structured_after_retry": Case([said("Three."), said('{"count": 3}')], [*ONE, *SCHEMA]),
    "structured_never": Case([said("Three.")], [*ONE, *SCHEMA], 2),
    "api_retry": Case([BUSY, BUSY, said("Well.")], ONE),
    "api_gives_up": Case([BUSY], ONE, 1),
    "wrong_key": Case([WRONG_KEY], ONE, 1),
    "refused": Case([refused()], ONE, 2),
    "unreadable_input": Case([unreadable(), said("Well.")], ONE),
    "max_turns_later": Case(
        [said("First."), said("Second.", act("one"))], [*STREAM, "--max-turns", "1"], 75,
        users("one", "two"),
    ),
    "budget_later": Case(
        [said("First."), said("Second.", act("one"))], [*STREAM, "--max-budget-usd", "0.03"], 137,
        users("one", "two"),
    ),
    "server_away": Case(
        [said("Well.")],
        [*ONE, "--mcp-config", '{"mcpServers": {"away": {"command": "/nowhere/at/all"}}}'],
    ),
}  # fmt: skip


def play(shell: Shell, case: Case, form: str) -> Said:
    """A case, with the tool allowed unless its flags say otherwise."""
    allowed = [] if "--no-permissions" in case.flags else ["--allow", "acting"]
    flags = [*MODEL, "--output-format", form, *case.flags, *allowed]
    set_prices(shell)
    with serving(shell, case.replies):
        told = shell(*flags, stdin=case.stdin, tools=[Acting()])
    assert told.code == case.code, told.err
    return told


@pytest.mark.parametrize("name", CASES)
def test_the_frames_with_each_flag_are_the_golden_ones(shell: Shell, name: str) -> None:
    compare(name, play(shell, CASES[name], "stream-json").frames(), shell)


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].code or CASES[name].stdin])
def test_json_of_each_ending_is_the_last_golden_frame_alone(shell: Shell, name: str) -> None:
    (frame,) = play(shell, CASES[name], "json").frames()
    assert normalised(frame, shell) == golden(name)[-1]


def test_pieces_make_up_the_message_that_follows_them(shell: Shell) -> None:
    frames = play(shell, CASES["partial_messages"], "stream-json").frames()
    pieces: dict[int, str] = {}
    for frame in frames[: [frame["type"] for frame in frames].index("message")]:
        if frame["type"] == "content_block_delta":
            delta = dict(frame["delta"])
            delta.pop("type")
            (text,) = delta.values()
            pieces[frame["index"]] = pieces.get(frame["index"], "") + text
    uses = [frame for frame in frames if frame["type"] == "tool_use"]
    assert pieces == {
        0: "Let me see. Yes.",
        1: "I look.",
        2: msgspec.json.encode(uses[0]["input"]).decode(),
        3: "Then more.",
        4: msgspec.json.encode(uses[1]["input"]).decode(),
    }


def _first(shell: Shell) -> str:
    """A session to go on with."""
    told = shell(*MODEL, *FRAMES, *ONE)
    assert told.code == 0
    return str(told.result["session_id"])


@pytest.mark.parametrize(
    ("name", "flags"), [("resumed", []), ("forked", ["--fork-session"])], ids=["resume", "fork"]
)
def test_a_session_that_goes_on_is_golden_too(shell: Shell, name: str, flags: list[str]) -> None:
    set_prices(shell)
    with serving(shell, [said("First."), said("Second.")]) as server:
        earlier = _first(shell)
        told = shell(*MODEL, *FRAMES, "-p", "and then?", "--resume", earlier, *flags)
        texts = [message["content"] for message in server.requests[1].json()["messages"]]
    assert told.code == 0
    assert (told.result["session_id"] == earlier) == (not flags)
    assert [text if isinstance(text, str) else text[0]["text"] for text in texts] == [
        "go", "First.", "and then?",
    ]  # fmt: skip
    compare(name, told.frames(), shell)


@pytest.mark.parametrize("form", ["stream-json", "json"])
def test_a_session_that_is_not_there_has_one_golden_frame(shell: Shell, form: str) -> None:
    told = shell(*MODEL, *ONE, "--output-format", form, "--resume", "chat_nobody")
    assert told.code == 66
    compare("missing", told.frames(), shell)


def test_a_key_that_is_missing_is_golden_too(shell: Shell) -> None:
    told = shell("--model", "anthropic/m", *FRAMES, *ONE)
    assert told.code == 1
    compare("missing_key", told.frames(), shell)


def test_a_cancelled_run_is_golden_too(shell: Shell) -> None:
    tool = Acting()
    stopper = threading.Thread(target=_interrupt_when_begun, args=(tool,))
    stopper.start()
    told = _scripted(shell, [[say("I wait."), call("acting", "c1", act="wait")]], tools=[tool])
    stopper.join()
    assert told.code == 124
    compare("cancelled", told.frames(), shell)


def _interrupt_when_begun(tool: Acting) -> None:
    while not tool.begun.is_set():
        threading.Event().wait(0.01)
    os.kill(os.getpid(), signal.SIGINT)


def _scripted(
    shell: Shell, frames: list[list[Json]], *flags: str, tools: Sequence[Acting] = ()
) -> Said:
    model = shell.stage.scenario(*frames)
    return shell("-p", "go", "--model", model, *(flags or FRAMES), "--allow", "acting", tools=tools)


TEXTS: dict[str, tuple[list[list[Json]], int]] = {
    "text": ([[say("I look."), call("acting", act="x")], [say("All is "), say("well.\n")]], 0),
    "text_of_nothing": ([[say("I look."), call("acting", act="x")], [fail("fatal", "No.")]], 1),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_is_the_golden_one(shell: Shell, name: str) -> None:
    frames, code = TEXTS[name]
    told = _scripted(shell, frames, "--output-format", "text", tools=[Acting()])
    assert told.code == code
    compare_text(name, told.out)


def test_text_of_two_messages_is_that_of_the_last_one(shell: Shell) -> None:
    compare_text("text_of_two_messages", play(shell, CASES["two_messages"], "text").out)


def test_events_of_two_messages_are_the_runs_one_after_the_other(shell: Shell) -> None:
    told = play(shell, CASES["two_messages"], "events")
    assert told.out == b"".join(shell("events", run_id).out for run_id in shell.run_ids())
    compare_text("events", "\n".join(one["type"] for one in told.frames()).encode() + b"\n")
