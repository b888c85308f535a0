"""Permission requests put to a client that answers them: each once, in time, or policy says no."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from batten.agent.deps import Answer, Question
from batten.contract.errors import Conflict, NotFound
from batten.journal.recorder import Recorder
from batten.protocols.heddle.requests import Permission
from batten.serve.heddle.opening import RESOLVERS
from batten.session.requests import JournalRequests, cancelled, known_request, resolve

_GONE = "nobody is there to give approval"
_NOBODY = "User interaction not available in headless mode"


class ClientPermissions:
    """Asks the client of one session. The question is a fact before the client hears of it."""

    def __init__(self, group: asyncio.TaskGroup, patience_s: float) -> None:
        self._group = group
        self._asking = JournalRequests(RESOLVERS, patience_s, self._opened)
        self._open: dict[str, tuple[Recorder, Question]] = {}
        self._gone = False
        """The client answers no more."""
        self.grant: Callable[[str], Awaitable[None]] | None = None
        """Allows a tool for the rest of the session."""

    async def ask(self, recorder: Recorder, question: Question) -> Answer:
        if question.request_class != "approval":
            return Answer(False, "policy", _NOBODY)
        if self._gone:
            return Answer(False, "policy", _GONE)
        try:
            return await self._asking.ask(recorder, question)
        finally:
            waiting = {key: one for key, one in self._open.items() if one[1] is not question}
            self._open = waiting

    async def answer(self, said: Permission) -> None:
        """Store the client's answer; `NotFound` if nothing waits for it, or not any more."""
        nothing = f"No permission request {said.request_id} waits for an answer"
        if said.request_id not in self._open:
            raise NotFound(nothing)
        recorder, question = self._open[said.request_id]
        if (await known_request(recorder.journal, said.request_id)).status != "pending":
            raise NotFound(nothing)
        granted = said.decision != "deny"
        if said.decision == "always" and self.grant is not None:
            await self.grant(question.tool_name)
        try:
            await resolve(
                recorder.journal,
                recorder.redactor,
                said.request_id,
                granted=granted,
                by="client",
                text=said.reason or ("" if granted else "User denied"),
            )
        except Conflict as error:
            raise NotFound(nothing) from error

    async def hang_up(self) -> None:
        """The client answers no more: what waits for it ends, and policy says no from now on."""
        self._gone = True
        for request_id in tuple(self._open):
            await self._cancel(request_id)

    def _opened(self, recorder: Recorder, question: Question, request_id: str) -> None:
        self._open[request_id] = (recorder, question)
        if self._gone:
            self._group.create_task(self._cancel(request_id))

    async def _cancel(self, request_id: str) -> None:
        recorder, question = self._open[request_id]
        fact = cancelled(request_id, question.request_class, by="policy", reason=_GONE)
        with suppress(Conflict):  # somebody was first
            await recorder.journal.append(recorder.run_id, [fact], fence=None)
