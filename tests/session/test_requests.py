"""Questions a run asks somebody outside: asked durably, answered once, waited for in bounds."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest

from batten.agent.deps import Answer, Question
from batten.agent.execution import Execution
from batten.agent.halt import Parked
from batten.contract import facts as f
from batten.contract.errors import CallerError, Conflict, NotFound
from batten.journal.contract import Journal, Lease, RequestRow
from batten.journal.recorder import Recorder
from batten.redact.redactor import Redactor
from batten.session.requests import JournalRequests, granted_rules, resolve
from batten.session.session import Session
from tests.agent.stage import Played, Stage, Statement, bash, call, finish, say

from .processes import batten, running, until

SECRET = "s3kr1t-Value-99"
ASKING = ("--ask-operator", "--request-seconds", "20")


class Asked:
    """A run that waits for an answer, and how it went on."""

    def __init__(self, session: Session, execution: Execution, request: RequestRow) -> None:
        self.session = session
        self.execution = execution
        self.request = request
        self.finishing: asyncio.Task[Played] | None = None

    async def resolve(
        self, granted: bool, text: str = "", by: str = "operator", **more: Any
    ) -> RequestRow:
        journal = self.session.deps.journal
        request_id, redactor = self.request.request_id, Redactor([SECRET])
        return await resolve(
            journal, redactor, request_id, granted=granted, by=by, text=text, **more
        )

    @property
    def played(self) -> Played:
        assert self.finishing is not None
        return self.finishing.result()


@asynccontextmanager
async def asking(stage: Stage, *statements: Statement) -> AsyncGenerator[Asked, None]:
    """A run up to its first question; it has ended when the block does."""
    model = stage.scenario(list(statements), [say("done")])
    async with stage.session("--model", model, *ASKING) as session:
        execution = await session.prompt("go")
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            finishing = group.create_task(finish(session, execution))
            async for page in session.deps.journal.follow(execution.run_id):
                if any(one.type in ("approval.requested", "request.opened") for one in page):
                    break
            (request,) = await session.deps.journal.requests(execution.run_id)
            asked = Asked(session, execution, request)
            asked.finishing = finishing
            yield asked


async def test_an_approved_call_is_run_and_the_verdict_names_who_approved(stage: Stage) -> None:
    async with asking(stage, bash("touch made", "c1")) as asked:
        assert not (stage.workspace / "made").exists()
        assert asked.request.status == "pending"
        row = await asked.resolve(True, "go ahead")
        assert (row.status, row.decision, row.by) == ("answered", "approved", "operator")
    played = asked.played
    assert (stage.workspace / "made").exists()
    requested = played.one(f.ApprovalRequested)
    assert (requested.tool_call_id, requested.kind, requested.summary) == (
        "c1",
        "bash",
        "touch made",
    )
    assert requested.resolvers == ["operator"]
    verdicts = [(one.verdict, one.decided_by) for one in played.all(f.PolicyToolDecided)]
    assert verdicts == [("ask", "rule:default:*"), ("allow", "resolver:operator")]
    assert played.one(f.ApprovalResolved).comment == "go ahead"


async def test_a_denied_call_is_told_to_the_model_with_the_reason(stage: Stage) -> None:
    async with asking(stage, bash("touch made")) as asked:
        await asked.resolve(False, "not on a Friday")
    assert not (stage.workspace / "made").exists()
    blocked = asked.played.one(f.PolicyToolBlocked)
    assert blocked.output == "Error: Permission denied — not on a Friday"
    assert blocked.policy_id == "resolver:operator"
    assert asked.played.ended.outcome == "completed"


async def test_a_secret_in_an_answer_is_not_stored(stage: Stage) -> None:
    async with asking(stage, bash("touch made")) as asked:
        row = await asked.resolve(False, f"not with {SECRET}")
    assert row.answer == {"comment": "not with <redacted>"}
    assert asked.played.one(f.ApprovalResolved).comment == "not with <redacted>"


async def test_the_second_answer_is_told_who_won(stage: Stage) -> None:
    async with asking(stage, bash("touch made")) as asked:
        await asked.resolve(True)
        with pytest.raises(Conflict, match=r"is already approved by operator"):
            await asked.resolve(False)
    assert (stage.workspace / "made").exists()
    assert len(asked.played.all(f.ApprovalResolved)) == 1


async def test_of_many_answers_at_once_one_counts(stage: Stage) -> None:
    async with asking(stage, bash("touch made")) as asked:
        answers = (asked.resolve(True), asked.resolve(False), asked.resolve(True))
        results = await asyncio.gather(*answers, return_exceptions=True)
    won = [one for one in results if isinstance(one, RequestRow)]
    lost = [one for one in results if isinstance(one, Conflict)]
    assert (len(won), len(lost)) == (1, 2)
    assert (stage.workspace / "made").exists() is (won[0].decision == "approved")


async def test_only_a_declared_role_may_answer(stage: Stage) -> None:
    async with asking(stage, bash("touch made")) as asked:
        with pytest.raises(CallerError, match=r"'passer-by' may not answer .* operator"):
            await asked.resolve(True, by="passer-by")
        assert not (stage.workspace / "made").exists()
        await asked.resolve(False)


async def test_a_person_answers_in_a_role_and_is_named(stage: Stage) -> None:
    async with asking(stage, bash("touch made")) as asked:
        await asked.resolve(False, "", by="ann", role="operator")
    assert asked.played.one(f.ApprovalResolved).by == "ann"
    blocked = asked.played.one(f.PolicyToolBlocked)
    assert blocked.output == "Error: Permission denied — rejected by ann"


async def test_a_grant_allows_the_same_command_for_the_rest_of_the_run(stage: Stage) -> None:
    calls = (bash("touch made", "c1"), bash("touch made", "c2"))
    async with asking(stage, *calls) as asked:
        row = await asked.resolve(True, scope="session", grant="bash(touch made)")
        assert (row.answer["scope"], row.answer["grant"]) == ("session", "bash(touch made)")
        rules = await granted_rules(asked.session.deps.journal, asked.session.session_id)
    verdicts = [(one.verdict, one.decided_by) for one in asked.played.all(f.PolicyToolDecided)]
    assert verdicts == [
        ("ask", "rule:default:*"),
        ("allow", "resolver:operator"),
        ("allow", "rule:grant:bash(touch made)"),
    ]
    assert [(rule.action, rule.pattern, rule.source) for rule in rules] == [
        ("allow", "bash(touch made)", "grant")
    ]


async def test_a_rejection_that_halts_ends_the_run_with_its_own_reason(stage: Stage) -> None:
    async with asking(stage, bash("touch made")) as asked:
        await asked.resolve(False, "no", halt=True, halt_reason="approval rejected")
    ending = asked.played.one(f.RunCancelled)
    assert (ending.by, ending.reason) == ("operator", "approval rejected")
    assert not (stage.workspace / "made").exists()


async def test_a_question_nobody_asked_is_not_found(stage: Stage) -> None:
    async with asking(stage, bash("touch made")) as asked:
        with pytest.raises(NotFound, match="`batten requests` lists them"):
            await resolve(
                asked.session.deps.journal, Redactor(), "appr_none", granted=True, by="operator"
            )
        await asked.resolve(False)


async def test_a_question_nobody_answers_in_time_is_a_denial(stage: Stage) -> None:
    model = stage.scenario([bash("touch made")], [say("done")])
    flags = ("--model", model, "--ask-operator", "--request-seconds", "0.2")
    played = await stage.run(*flags)
    assert not (stage.workspace / "made").exists()
    assert played.one(f.ApprovalTimedOut).approval_id == played.one(f.ApprovalRequested).approval_id
    assert played.one(f.PolicyToolBlocked).output == (
        "Error: Permission denied — nobody answered in time (the rule is: ask * (default))"
    )
    assert played.ended.outcome == "completed"


async def test_cancelling_a_waiting_run_closes_its_question(stage: Stage) -> None:
    async with asking(stage, bash("touch made")) as asked:
        await asked.execution.cancel("operator", "enough")
    assert asked.played.ended.outcome == "cancelled"
    assert asked.played.one(f.ApprovalResolved).decision == "cancelled"
    assert not (stage.workspace / "made").exists()


class Hasty:
    """Gives a question up in the moment between its asking and its being stored."""

    async def ask(self, recorder: Recorder, question: Question) -> Answer:
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(JournalRequests(("client",), 20).ask(recorder, question))
            await asyncio.sleep(0)
            asking.cancel()
        return Answer(False, "policy", "given up")


async def test_a_question_that_is_given_up_while_it_is_stored_is_closed_too(stage: Stage) -> None:
    model = stage.scenario([bash("touch made")], [say("done")])
    async with stage.session("--model", model, *ASKING) as session:
        session.deps = msgspec.structs.replace(session.deps, requests=Hasty())
        played = await finish(session, await session.prompt("go"))
    assert len(played.all(f.ApprovalRequested)) == 1
    assert played.one(f.ApprovalResolved).decision == "cancelled"


class Interrupted:
    """A journal whose caller is cancelled while it parks a run."""

    def __init__(self, journal: Journal, cancel: Callable[[], object]) -> None:
        self._journal = journal
        self._cancel = cancel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def park(self, lease: Lease) -> bool:
        parking = asyncio.current_task()
        assert parking is not None
        parking.cancel()  # in effect when it waits for the journal next
        self._cancel()
        return await self._journal.park(lease)


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_run_that_is_cancelled_while_it_is_parked_raises_no_alarm(
    stage: Stage, caplog: pytest.LogCaptureFixture, leaves: bool
) -> None:
    model = stage.scenario([bash("touch made")], [say("done")])
    async with stage.session("--model", model, *ASKING) as session:
        requests = JournalRequests(("client",), 20, parks=True)
        session.deps = msgspec.structs.replace(session.deps, requests=requests, for_others=True)
        execution = await session.prompt("go")
        finishing = asyncio.create_task(execution.finish())
        cancel = finishing.cancel if leaves else bool
        journal = Interrupted(session.deps.journal, cancel)
        execution.recorder.journal = cast("Journal", journal)
        with pytest.raises(asyncio.CancelledError if leaves else Parked):
            async with asyncio.timeout(20):
                await finishing
        (request,) = await session.deps.journal.requests(execution.run_id)
    assert request.status == "pending"  # whoever ends the parked run closes it
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == []


async def test_a_question_to_a_person_is_answered_with_words(stage: Stage) -> None:
    async with asking(stage, call("ask_user", question="Which colour?")) as asked:
        assert (asked.request.request_class, asked.request.summary) == (
            "user_input",
            "Which colour?",
        )
        await asked.resolve(True, "blue")
    assert asked.played.one(f.ToolCompleted).output == "blue"
    closed = asked.played.one(f.RequestClosed)
    assert (closed.resolution, closed.by, closed.answer) == (
        "answered",
        "operator",
        {"text": "blue"},
    )


async def test_a_question_to_a_person_may_be_declined(stage: Stage) -> None:
    async with asking(stage, call("ask_user", question="Which colour?")) as asked:
        await asked.resolve(False, "ask later")
    failed = asked.played.one(f.ToolFailed)
    assert (failed.output, failed.error_kind) == ("ask later", "nobody_answers")


async def test_a_question_to_a_person_who_is_not_there_fails_at_once(stage: Stage) -> None:
    model = stage.scenario([call("ask_user", question="Which colour?")], [say("done")])
    played = await stage.run("--model", model)
    failed = played.one(f.ToolFailed)
    assert failed.output == "User interaction not available in headless mode"
    assert played.all(f.RequestOpened) == []


async def test_the_same_call_asked_twice_is_two_questions(stage: Stage) -> None:
    async with asking(stage, bash("echo 1", "c1"), bash("echo 1", "c2")) as asked:
        await asked.resolve(True)
        journal = asked.session.deps.journal
        pending: list[RequestRow] = []
        async for _ in journal.follow(asked.execution.run_id):
            pending = [
                one
                for one in await journal.requests(asked.execution.run_id)
                if one.status == "pending" and one.tool_call_id == "c2"
            ]
            if pending:
                break
        await resolve(journal, Redactor(), pending[0].request_id, granted=False, by="operator")
    assert [one.tool_call_id for one in asked.played.all(f.ToolCompleted)] == ["c1"]
    assert [one.tool_call_id for one in asked.played.all(f.PolicyToolBlocked)] == ["c2"]


def test_another_process_lists_and_answers_and_the_loser_is_told(stage: Stage) -> None:
    model = stage.scenario([bash("touch made", "c1")], [say("done")])
    with running(stage, "--model", model, *ASKING) as process:
        run_id = until(process, "approval.requested")
        listed = batten(stage, "requests", "--json")
        (row,) = [msgspec.json.decode(line) for line in listed.stdout.splitlines()]
        assert (row["run_id"], row["summary"]) == (run_id, "touch made")
        assert b"touch made" in batten(stage, "requests", run_id).stdout
        first = batten(stage, "answer", row["request_id"], "allow", "--note", "fine")
        assert (first.returncode, first.stdout) == (0, f"{row['request_id']}: approved\n".encode())
        until(process, "run.finished")
    assert (stage.workspace / "made").exists()
    second = batten(stage, "answer", row["request_id"], "deny")
    assert second.returncode == 1
    assert b"is already approved by operator" in second.stderr
    assert batten(stage, "requests").stdout == b""
    unknown = batten(stage, "answer", "appr_none", "allow")
    assert unknown.returncode == 66
