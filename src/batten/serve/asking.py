"""Sends the requests of a run to a client, in the two ways that protocols have for it.

By call: each question is an RPC to the client, and the response is the answer. By message: the
renderer shows the question as a fact, and a later message from the client answers it. Either way
question and answer are stored as facts, and another surface may answer first.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from msgspec import Struct

from batten.agent.deps import Answer, Question
from batten.contract.commands import Command, Resolve
from batten.contract.errors import BattenError, Conflict, NotFound
from batten.contract.facts.approval import RequestClass
from batten.journal.contract import Journal
from batten.journal.recorder import Recorder
from batten.serve.client_calls import ClientGone
from batten.session.requests import JournalRequests, cancelled, known_request

Take = Callable[[Command], Awaitable[None]]


class Reply(Struct, frozen=True):
    """A client's answer to a request, independent of the protocol."""

    granted: bool
    text: str = ""
    by: str = "client"
    halt: bool = False
    """Whether a refusal ends the run."""
    updated_input: dict[str, Any] | None = None
    """Arguments that replace those in the question."""

    def to(self, request_id: str) -> Resolve:
        """The command that stores this answer."""
        return Resolve(
            request_id=request_id,
            granted=self.granted,
            by=self.by,
            text=self.text,
            updated_input=self.updated_input,
            halt=self.halt,
        )


class RequestsByCall:
    """Asks a client by RPC. A protocol overrides `policy` and `call`."""

    take: Take
    """Where commands go: the live session, once it is open."""

    def __init__(
        self, group: asyncio.TaskGroup, resolvers: tuple[str, ...], patience_s: float
    ) -> None:
        self._group = group
        self._calls: dict[int, asyncio.Task[None]] = {}
        """Keyed by `id(question)`: the question outlives its call."""
        self._questions = JournalRequests(resolvers, patience_s, self._opened)

    def policy(self, question: Question) -> Answer | None:
        """The answer to a question that the client is not asked; None if it is."""
        return None

    async def call(self, recorder: Recorder, question: Question, request_id: str) -> Reply:
        """Ask the client and read its response."""
        raise NotImplementedError

    def refusal(self, error: Exception) -> Reply:
        """The answer when the client could not be asked, or its response could not be read."""
        return Reply(False, f"the client could not be asked: {error}", by="policy")

    async def ask(self, recorder: Recorder, question: Question) -> Answer:
        decided = self.policy(question)
        if decided is not None:
            return decided
        try:
            return await self._questions.ask(recorder, question)
        finally:
            call = self._calls.pop(id(question), None)
            if call is not None:
                call.cancel()

    def _opened(self, recorder: Recorder, question: Question, request_id: str) -> None:
        call = self._call(recorder, question, request_id)
        self._calls[id(question)] = self._group.create_task(call)

    async def _call(self, recorder: Recorder, question: Question, request_id: str) -> None:
        """Ask the client and store its answer. Every error becomes a refusal."""
        try:
            reply = await self.call(recorder, question, request_id)
        except ClientGone as error:
            reply = Reply(False, str(error), by="policy")
        except Exception as error:  # the response is unvalidated input
            reply = self.refusal(error)
        try:
            await self.take(reply.to(request_id))
        except Conflict:
            return  # another surface answered first
        except Exception as error:
            # If the refusal cannot be stored either, the question stays open until its deadline.
            with suppress(BattenError):
                await self.take(self.refusal(error).to(request_id))


class RequestsByMessage:
    """Asks a client through facts and accepts its messages as answers."""

    take: Take
    """Where commands go: the live session, once it is open."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        resolvers: tuple[str, ...],
        patience_s: Callable[[RequestClass], float],
        closed_by: str,
    ) -> None:
        """`closed_by` is the author of the cancellations recorded when the client disconnects."""
        self._group = group
        self._closed_by = closed_by
        self._resolvers = resolvers
        self._patience_s = patience_s
        self._asking: dict[str, JournalRequests] = {}
        """Keyed by request class."""
        self._open: dict[str, Question] = {}
        self._gone = ""
        """Why the client no longer answers; empty while it does."""

    def attach(self, journal: Journal) -> None:
        """Set the journal that stores questions and answers."""
        self._journal = journal

    def policy(self, question: Question) -> Answer | None:
        """The answer to a question that the client is not asked; None if it is."""
        return None

    async def ask(self, recorder: Recorder, question: Question) -> Answer:
        decided = self.policy(question)
        if decided is not None:
            return decided
        kind = question.request_class
        if kind not in self._asking:
            patience_s = self._patience_s(kind)
            self._asking[kind] = JournalRequests(self._resolvers, patience_s, self._opened)
        try:
            return await self._asking[kind].ask(recorder, question)
        finally:
            self._open = {key: one for key, one in self._open.items() if one is not question}

    def pending(self) -> Iterable[str]:
        """The ids of the requests that the client can answer now."""
        return tuple(self._open)

    def question(self, request_id: str) -> Question | None:
        """The question of a pending request."""
        return self._open.get(request_id)

    async def is_pending(self, request_id: str) -> bool:
        """Whether a request has no answer yet, from any surface."""
        return (await known_request(self._journal, request_id)).status == "pending"

    async def store(self, request_id: str, reply: Reply, missing: str) -> None:
        """Store a client's answer; raises `NotFound` with `missing` if the request is closed."""
        try:
            await self.take(reply.to(request_id))
        except Conflict as error:
            raise NotFound(missing) from error

    async def hang_up(self, reason: str) -> None:
        """The client disconnected: cancel pending requests; policy decides all later ones."""
        self._gone = reason
        for request_id in tuple(self.pending()):
            await self._cancel(request_id)

    def _opened(self, recorder: Recorder, question: Question, request_id: str) -> None:
        self._open[request_id] = question
        if self._gone:  # the client disconnected while the question was being stored
            self._group.create_task(self._cancel(request_id))

    async def _cancel(self, request_id: str) -> None:
        row = await known_request(self._journal, request_id)
        fact = cancelled(request_id, row.request_class, by=self._closed_by, reason=self._gone)
        with suppress(Conflict):  # another surface answered first
            await self._journal.append(row.run_id, [fact], fence=None)
