"""A conversation while it happens: messages, interrupts and signals at every moment of it."""

import signal

import pytest

from tests.agent.stage import Stage
from tests.cli.invoking import Shell, serving
from tests.models.server import Fault, ModelServer, Reply, answer
from tests.models.wire import anthropic_start, anthropic_text_block, anthropic_turn, sse

from .conversing import INTERRUPT, Conversation, eventually

MODEL = ("--model", "anthropic/claude-sonnet-4-6")
FRAMES = ("--output-format", "stream-json", *MODEL)
BOTH = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])

_half = sse(anthropic_start(), *anthropic_text_block(0, "Half an answer", 4)[:-1], named=True)
SLOW: Reply = [*answer(_half)[:-1], Fault.STALL]


def said(text: str) -> Reply:
    return answer(anthropic_turn(text))


def begin(stage: Stage, server: ModelServer, *argv: str) -> Conversation:
    return Conversation(stage, *argv, **server.environ())


def test_each_message_is_answered_before_the_next_is_sent(shell: Shell) -> None:
    with (
        serving(shell, [said("First."), said("Second.")]) as server,
        begin(shell.stage, server, *FRAMES) as talk,
    ):
        talk.ask("one")
        assert talk.until("message")["content"][0]["text"] == "First."
        talk.ask("two")
        assert talk.until("message")["content"][0]["text"] == "Second."
        talk.close()
        assert talk.end() == 0
        second = server.requests[1].json()["messages"]
    assert [message["role"] for message in second] == ["user", "assistant", "user"]
    assert talk.frames()[-1]["result"] == "Second."


def test_an_interrupt_ends_the_run_that_works_and_the_next_message_starts_as_usual(
    shell: Shell,
) -> None:
    with (
        serving(shell, [SLOW, said("Second.")]) as server,
        begin(shell.stage, server, *FRAMES, "--include-partial-messages") as talk,
    ):
        talk.ask("one")
        talk.until("content_block_delta")
        talk.send(INTERRUPT)
        talk.ask("two")
        assert talk.until("message")["content"][0]["text"] == "Half an answer"
        assert talk.until("message")["content"][0]["text"] == "Second."
        talk.close()
        assert talk.end() == 0
    assert talk.frames()[-1]["subtype"] == "success"
    outcomes = [row["outcome"] for row in shell("runs", "--json").frames()]
    assert outcomes == ["completed", "cancelled"]


def test_an_interrupt_right_after_its_message_is_not_lost(shell: Shell) -> None:
    with (
        serving(shell, [[Fault.STALL]]) as server,
        begin(shell.stage, server, *FRAMES) as talk,
    ):
        talk.send({"type": "user", "content": "one"}, INTERRUPT)
        talk.close()
        assert talk.end() == 124
    assert talk.frames()[-1]["subtype"] == "cancelled"
    (run,) = shell("runs", "--json").frames()
    assert run["outcome"] == "cancelled"


def test_an_interrupt_with_nothing_to_interrupt_does_nothing(shell: Shell) -> None:
    with (
        serving(shell, [said("First."), said("Second.")]) as server,
        begin(shell.stage, server, *FRAMES) as talk,
    ):
        talk.send(INTERRUPT)
        talk.ask("one")
        talk.until("message")
        eventually(lambda: shell("runs", "--json").frames()[0]["outcome"] == "completed")
        talk.send(INTERRUPT)
        talk.ask("two")
        assert talk.until("message")["content"][0]["text"] == "Second."
        talk.close()
        assert talk.end() == 0


@BOTH
@pytest.mark.parametrize("form", ["stream-json", "json", "text", "events"])
def test_a_signal_ends_a_conversation_that_waits_for_its_next_message(
    shell: Shell, number: signal.Signals, form: str
) -> None:
    """Its last run ended well, but whoever asks for the end of everything is told so."""
    with (
        serving(shell, [said("First.")]) as server,
        begin(shell.stage, server, *MODEL, "--output-format", form) as talk,
    ):
        talk.ask("one")
        eventually(server.requests.__len__)
        eventually(lambda: shell("runs", "--json").frames()[0]["outcome"] == "completed")
        talk.signal(number)
        assert talk.end() == 124
    if form in ("stream-json", "json"):
        result = talk.frames()[-1]
        assert (result["subtype"], result["last_assistant_text"]) == ("cancelled", "First.")
        assert "result" not in result
    if form == "text":
        assert talk.out == b""


@BOTH
def test_a_signal_ends_a_conversation_that_waits_for_its_first_message(
    shell: Shell, number: signal.Signals
) -> None:
    with serving(shell, [said("never")]) as server, begin(shell.stage, server, *FRAMES) as talk:
        talk.until("init")
        talk.signal(number)
        assert talk.end() == 124
    assert [frame.get("subtype") for frame in talk.frames()] == ["init", "cancelled"]
    assert talk.frames()[-1]["tool_calls_seen"] == 0


@BOTH
def test_a_signal_ends_the_run_and_forgets_the_messages_after_it(
    shell: Shell, number: signal.Signals
) -> None:
    with (
        serving(shell, [SLOW, said("never")]) as server,
        begin(shell.stage, server, *FRAMES, "--include-partial-messages") as talk,
    ):
        talk.ask("one", "two", "three")
        talk.until("content_block_delta")
        talk.signal(number)
        assert talk.end() == 124
        assert len(server.requests) == 1
    assert talk.frames()[-1]["subtype"] == "cancelled"
    assert [row["outcome"] for row in shell("runs", "--json").frames()] == ["cancelled"]


def test_a_wrong_line_waits_for_the_run_before_it_and_ends_those_after_it(shell: Shell) -> None:
    with (
        serving(shell, [said("First.")]) as server,
        begin(shell.stage, server, *FRAMES) as talk,
    ):
        talk.send({"type": "user", "content": "one"}, b"nonsense")
        assert talk.end() == 64, "it does not wait for its input to end"
        assert len(server.requests) == 1
    kinds = [frame.get("subtype", frame["type"]) for frame in talk.frames()]
    assert kinds == ["init", "message", "error"]


def test_a_reader_that_goes_away_between_messages_is_noticed_with_the_next(shell: Shell) -> None:
    with (
        serving(shell, [said("First."), SLOW]) as server,
        begin(shell.stage, server, *FRAMES, "--include-partial-messages") as talk,
    ):
        talk.ask("one")
        talk.until("message")
        talk.go_away()
        talk.ask("two")
        assert talk.code() == 124


def test_many_messages_at_once_are_answered_one_after_the_other(shell: Shell) -> None:
    count = 12
    with (
        serving(shell, [said(f"Answer {number}.") for number in range(count)]) as server,
        begin(shell.stage, server, *FRAMES, "--replay-user-messages") as talk,
    ):
        talk.ask(*(f"message {number}" for number in range(count)))
        talk.close()
        assert talk.end() == 0
    shown = [
        frame["content"][0]["text"]
        for frame in talk.frames()
        if frame["type"] in ("user", "message")
    ]
    assert shown == [
        text for number in range(count) for text in (f"message {number}", f"Answer {number}.")
    ]
    assert talk.frames()[-1]["turns"] == count
