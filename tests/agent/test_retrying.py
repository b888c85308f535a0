"""A call that failed is tried again as often as somebody wants that, and not more often."""

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from batten.agent.deps import Answer, Question
from batten.agent.retrying import MOST_ATTEMPTS
from batten.contract.facts import PolicyToolDecided, RunCancelled, ToolFailed, ToolInvoked
from batten.journal.recorder import Recorder
from batten.session.requests import JournalRequests, resolve
from tests.agent.stage import Played, Stage, bash, call, end, finish, say

DONE = [say("Done."), end()]


class Deciding:
    """Answers each question through the journal, as it was told to."""

    def __init__(self, answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.asked: list[Question] = []

    async def ask(self, recorder: Recorder, question: Question) -> Answer:
        self.asked.append(question)
        said = self._answers.pop(0)
        async with asyncio.TaskGroup() as group:

            def opened(recorder: Recorder, question: Question, request_id: str) -> None:
                answering = resolve(
                    recorder.journal,
                    recorder.redactor,
                    request_id,
                    granted=said == "retry",
                    by="client",
                    halt=said == "abort",
                )
                group.create_task(answering)

            return await JournalRequests(("client",), 10, opened).ask(recorder, question)


async def play(stage: Stage, command: str, *answers: str) -> tuple[Played, list[Question]]:
    model = stage.scenario([bash(command, "c1")], DONE)
    deciding = Deciding(answers)
    async with stage.session("--model", model, "--permission-mode", "dontAsk") as session:
        session.deps = replace(session.deps, requests=deciding, asks_retry=lambda: True)
        return await finish(session, await session.prompt("go")), deciding.asked


async def test_each_attempt_is_decided_invoked_and_ended_by_itself(stage: Stage) -> None:
    command = "echo x >> tries; test $(wc -l < tries) = 2"
    played, asked = await play(stage, command, "retry")
    assert played.ended.outcome == "completed"
    attempts = [fact.attempt or 1 for fact in played.all(ToolInvoked)]
    assert attempts == [1, 2]
    assert [fact.decided_by for fact in played.all(PolicyToolDecided)] == [
        "mode:dontAsk",
        "resolver:client",
    ]
    assert played.ended.tool_calls == 1
    (question,) = asked
    assert question.detail["attempt"] == 2
    assert question.detail["args"] == {"command": command}


async def test_nobody_is_asked_once_there_were_enough_attempts(stage: Stage) -> None:
    played, asked = await play(stage, "exit 3", *["retry"] * MOST_ATTEMPTS)
    assert len(played.all(ToolFailed)) == MOST_ATTEMPTS
    assert len(asked) == MOST_ATTEMPTS - 1
    assert played.ended.outcome == "completed"


async def test_a_call_that_is_given_up_is_told_to_the_model_as_it_ended(stage: Stage) -> None:
    played, _ = await play(stage, "exit 3", "skip")
    assert len(played.all(ToolInvoked)) == 1
    assert played.ended.outcome == "completed"


async def test_whoever_aborts_ends_the_run(stage: Stage) -> None:
    played, _ = await play(stage, "exit 3", "abort")
    assert played.ended.outcome == "cancelled"
    assert played.one(RunCancelled).by == "client"


async def test_a_question_that_nobody_answered_is_not_asked_again(stage: Stage) -> None:
    model = stage.scenario([call("ask_user", "c1", question="Which?")], DONE)
    deciding = Deciding(["no"])
    async with stage.session("--model", model) as session:
        session.deps = replace(session.deps, requests=deciding, asks_retry=lambda: True)
        await finish(session, await session.prompt("go"))
    assert [question.request_class for question in deciding.asked] == ["user_input"]
