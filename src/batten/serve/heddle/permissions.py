"""Sends permission requests to a Heddle client, which answers with `permission` messages."""

import asyncio

from batten.agent.deps import Answer, Question, RunDeps
from batten.contract.commands import Configure
from batten.contract.errors import NotFound
from batten.protocols.heddle.requests import Permission
from batten.serve.asking import Reply, RequestsByMessage
from batten.serve.heddle.opening import RESOLVERS

_GONE = "nobody is there to give approval"
_NOBODY = "User interaction not available in headless mode"


class ClientPermissions(RequestsByMessage):
    """Asks the client of one session."""

    def __init__(self, group: asyncio.TaskGroup, patience_s: float, deps: RunDeps) -> None:
        super().__init__(group, RESOLVERS, lambda _: patience_s, closed_by="policy")
        self.attach(deps.journal)

    def policy(self, question: Question) -> Answer | None:
        if question.request_class != "approval":
            return Answer(False, "policy", _NOBODY)
        return Answer(False, "policy", _GONE) if self._gone else None

    async def answer(self, permission: Permission) -> None:
        """Store the client's answer; raises `NotFound` if the request is not pending."""
        missing = f"No permission request {permission.request_id} waits for an answer"
        question = self.question(permission.request_id)
        if question is None or not await self.is_pending(permission.request_id):
            raise NotFound(missing)
        granted = permission.decision != "deny"
        text = permission.reason or ("" if granted else "User denied")
        if permission.decision == "always":  # before the run continues
            rule = {"action": "allow", "pattern": question.tool_name, "source": "grant"}
            await self.take(Configure(changes={"add_rules": [rule]}))
        await self.store(permission.request_id, Reply(granted, text), missing)

    async def leave(self) -> None:
        await self.hang_up(_GONE)
