"""What the model sees is a fold of facts: live, read back and restored it is the same."""

import asyncio
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batten.agent.conversation import NEVER_RUN, SUMMARY_MARK, Conversation, needed_content
from batten.contract import facts as f
from batten.contract.conversation import Image, Message, Text, ToolCall, ToolResult
from batten.contract.envelope import decode_fact
from batten.contract.facts import Fact
from batten.contract.facts.assistant import MessageBlock, Usage
from batten.contract.ids import new_run_id
from batten.journal.contract import NewRun
from batten.journal.sqlite import SqliteJournal
from batten.session.history import read_back
from batten.session.session import Session

from .acting import PIXEL, Acting
from .conversing import PICTURE, Bodies, Script, scripts
from .stage import Stage, bash, call, finish, say

SECRET = "sk-live-0123456789abcdefghij"


def observe_all(conversation: Conversation, facts: list[Fact], bodies: Bodies) -> None:
    for fact in facts:
        needed = needed_content(fact)
        content = {one: bodies.kept[one] for one in (*needed.plain, *needed.sealed)}
        conversation.observe(fact, content)
        assert content == {}, "what a fact needs is what is taken"


def folded(facts: list[Fact], bodies: Bodies) -> Conversation:
    conversation = Conversation()
    observe_all(conversation, facts, bodies)
    return conversation


def settled(facts: list[Fact], bodies: Bodies) -> tuple[Message, ...]:
    conversation = folded(facts, bodies)
    conversation.settle()
    return conversation.messages


@given(scripts())
def test_every_call_is_answered_once_in_the_order_of_the_calls(script: Script) -> None:
    messages = settled(script.facts, script.bodies)
    for place, message in enumerate(messages):
        if message.role == "assistant" and message.tool_calls():
            asked = [call.id for call in message.tool_calls()]
            answers = messages[place + 1].blocks
            assert [b.call_id for b in answers if isinstance(b, ToolResult)] == asked


@given(scripts(), st.data())
def test_a_snapshot_goes_on_as_if_nothing_had_been_forgotten(
    script: Script, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(script.facts)))
    restored = Conversation()
    restored.restore(folded(script.facts[:cut], script.bodies).snapshot())
    observe_all(restored, script.facts[cut:], script.bodies)
    restored.settle()
    assert restored.messages == settled(script.facts, script.bodies)


@given(scripts())
def test_an_answer_that_was_taken_back_leaves_nothing(script: Script) -> None:
    void = {id(fact) for fact in script.void}
    others = [fact for fact in script.facts if id(fact) not in void]
    assert settled(script.facts, script.bodies) == settled(others, script.bodies)


@given(scripts())
def test_the_size_is_that_of_the_messages_whatever_was_removed(script: Script) -> None:
    conversation = folded(script.facts, script.bodies)
    fresh = Conversation()
    fresh.restore(conversation.snapshot())
    assert conversation.tokens == fresh.tokens
    assert len(conversation.token_sizes()) == len(conversation.messages)


@given(scripts())
def test_settling_twice_changes_nothing(script: Script) -> None:
    conversation = folded(script.facts, script.bodies)
    conversation.settle()
    once = conversation.messages
    conversation.settle()
    assert conversation.messages == once


@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(scripts())
def test_facts_read_back_from_a_journal_give_the_same_conversation(
    tmp_path: Path, script: Script
) -> None:
    # What ends a run is left out: a journal takes one ending.
    facts = [fact for fact in script.facts if fact.type not in f.TERMINAL]

    async def stored() -> list[Fact]:
        journal = SqliteJournal.open(tmp_path / "home")
        run_id = new_run_id()
        new = NewRun(run_id=run_id, kind="agent_loop", worker_id="w")
        queued = f.RunQueued("agent_loop", "m", "p", "/", "in_place", None)
        await journal.create(new, [queued])
        await journal.append(run_id, facts, fence=1)
        read = [decode_fact(one.body) for one in await journal.read(run_id, limit=10_000)]
        journal.close()
        return read[1:]

    read = asyncio.run(stored())
    assert read == facts
    assert settled(read, script.bodies) == settled(facts, script.bodies)


async def read_again(session: Session) -> tuple[Message, ...]:
    deps = session.deps
    conversation = Conversation()
    await read_back(conversation, deps.journal, deps.seal_key, session.session_id)
    return conversation.messages


async def test_the_live_conversation_of_a_real_run_is_the_one_read_back(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"SERVICE_TOKEN": SECRET})
    model = stage.scenario(
        [
            say("Looking."),
            bash(f"echo {SECRET} > kept; wc -c < kept", "sealed"),
            call("acting", "seen", act="picture"),
            call("acting", "broken", act="raise"),
            call("nobody", "unknown"),
        ],
        [call("acting", "denied", act="no")],
        [say("word " * 30_000)],
        [say("And once more.")],
    )
    flags = ("--model", model, "--deny", "acting(no)", "--allow", "acting", "--allow", "bash")
    async with stage.session(*flags, tools=[Acting()]) as session:
        execution = await session.prompt(f"My token is {SECRET}", [Image("image/jpeg", PICTURE)])
        await finish(session, execution)
        first = execution.conversation.messages
        assert await read_again(session) == first
        execution = await session.prompt("p" * 200_000)
        await finish(session, execution)
        assert await read_again(session) == execution.conversation.messages
    prompt, asked, told = first[:3]
    assert prompt.blocks == (
        Text(f"My token is {SECRET}"),
        Image("image/jpeg", PICTURE),
    )
    assert asked.tool_calls()[0] == ToolCall(
        "sealed", "bash", {"command": f"echo {SECRET} > kept; wc -c < kept"}
    )
    assert [block.call_id for block in told.blocks if isinstance(block, ToolResult)] == [
        "sealed",
        "seen",
        "broken",
        "unknown",
    ]
    assert told.blocks[0] == ToolResult("sealed", "bash", str(len(SECRET) + 1))
    assert told.blocks[1] == ToolResult(
        "seen", "acting", "look", images=(Image("image/png", PIXEL),)
    )
    assert first[-1].text() == "word " * 30_000
    for path in tmp_path.joinpath("home").rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()


def proposed(*calls: str) -> list[Fact]:
    facts: list[Fact] = [f.UserMessage(0, "go"), f.TurnStarted(1, "m", "p", 1)]
    facts += [f.AssistantToolCallProposed(1, one, "tool", {}) for one in calls]
    blocks = [MessageBlock("tool_call", index, tool_call_id=one) for index, one in enumerate(calls)]
    facts.append(
        f.AssistantMessageComplete(1, "m", "p", blocks, Usage(), "tool_use", None, None, 1, None)
    )
    return facts


def test_calls_without_a_result_get_one_that_says_so() -> None:
    told = settled([*proposed("a", "b"), f.RunCancelled("operator", "enough")], Bodies())[-1]
    assert told.blocks == (
        ToolResult("a", "tool", NEVER_RUN, is_error=True),
        ToolResult("b", "tool", NEVER_RUN, is_error=True),
    )


def test_only_calls_that_never_began_are_pending() -> None:
    facts = [*proposed("a", "b"), f.ToolCompleted("a", "tool", "custom", 1, output="did")]
    assert [one.id for one in folded(facts, Bodies()).pending_calls()] == ["b"]


def test_a_pruned_result_says_how_long_it_was_and_is_pruned_once() -> None:
    facts = [
        *proposed("a"),
        f.ToolCompleted("a", "tool", "custom", 1, output="x" * 500),
        f.TurnStarted(2, "m", "p", 1),
        f.ContextPruned(["a"], 10, 5),
        f.ContextPruned(["a"], 10, 5),
    ]
    assert settled(facts, Bodies())[-1].blocks == (
        ToolResult("a", "tool", "[pruned — original: 500 chars]"),
    )


def test_a_compacted_conversation_is_its_summary_and_the_tail_that_was_kept() -> None:
    facts: list[Fact] = [f.UserMessage(0, f"prompt {number}") for number in range(5)]
    facts.append(f.ContextCompacted("what was said", 3, 10, 5, kept_messages=2))
    assert [message.text() for message in settled(facts, Bodies())] == [
        f"{SUMMARY_MARK}what was said",
        "prompt 3",
        "prompt 4",
    ]


def test_what_a_broken_turn_said_is_not_in_the_conversation() -> None:
    facts: list[Fact] = [
        f.UserMessage(0, "go"),
        f.TurnStarted(1, "m", "p", 1),
        f.AssistantTextComplete(1, 0, "half of it"),
        f.TurnFailed(1, "broken", "it broke", False),
    ]
    assert settled(facts, Bodies()) == (Message("user", (Text("go"),)),)


def test_a_fact_of_a_newer_version_changes_nothing() -> None:
    facts: list[Fact] = [f.UserMessage(0, "go"), f.Unknown(type="context.rewoven", data={"a": 1})]
    assert settled(facts, Bodies()) == (Message("user", (Text("go"),)),)
