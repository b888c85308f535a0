"""What the rows of webhooks and of the audit log work with."""

import asyncio
import logging
from contextlib import AbstractContextManager
from typing import Any

from batten.contract.errors import BattenError
from batten.control.observer.contract import RuntimeFault
from batten.journal.contract import Journal
from batten.redact.redactor import Redactor
from batten.serve.http.table import Call
from batten.sinks.audit.log import AuditLog
from batten.sinks.audit.noting import Noted, noted, was_refused
from batten.sinks.store import SinkStore
from batten.sinks.webhooks.subscription import Subscriptions, sink_name

_CATCH_UP_S = 30.0
_log = logging.getLogger("batten.sinks")


class SinkService:
    """Opens its files with the first request that needs them."""

    def __init__(self, journal: Journal, home: str, redactor: Redactor) -> None:
        self.journal = journal
        self._home = home
        self._redactor = redactor
        self._store: SinkStore | None = None
        self._audit: AuditLog | None = None

    @property
    def store(self) -> SinkStore:
        if self._store is None:
            self._store = SinkStore.open(self._home)
        return self._store

    @property
    def subscriptions(self) -> Subscriptions:
        return Subscriptions(self.store, self._home)

    @property
    def audit(self) -> AuditLog:
        if self._audit is None:
            self._audit = AuditLog.open(self._home)
        return self._audit

    def record(
        self, call: Call, action: str, resource: str, resource_id: str, **details: Any
    ) -> None:
        """Record what a caller did, without the secrets that it named."""
        self.audit.append(
            **self._said(call, details),
            action=action,
            resource=resource,
            resource_id=self._redactor.authored.text(resource_id),
        )

    def noted(
        self, call: Call, action: str, resource: str, resource_id: str, **details: Any
    ) -> AbstractContextManager[Noted]:
        """Record what a caller does elsewhere, also if this process is killed meanwhile."""
        return noted(
            self.audit,
            _refuses,
            **self._said(call, details),
            action=action,
            resource=resource,
            resource_id=self._redactor.authored.text(resource_id),
        )

    def _said(self, call: Call, details: dict[str, Any]) -> dict[str, Any]:
        clean: dict[str, Any] = self._redactor.value(details)[0]
        return {
            "actor": call.principal.name,
            "actor_type": "key" if call.principal.key_id else "local",
            "details": clean,
            "request_id": call.request_id,
        }

    async def record_removal(self, call: Call, action: str, resource: str, name: str) -> None:
        """Record a removal before it is done, and first what the removed facts tell."""
        await self.catch_up()
        self.record(call, action, resource, name)

    async def catch_up(self) -> None:
        await self.audit.catch_up(self.journal)

    async def remove_before(self, cutoff: str, batch: int) -> dict[str, int]:
        """Remove entries of the audit log and deliveries of webhooks from before this time."""
        entries = 0
        while gone := self.audit.remove_before(cutoff, batch):
            entries += gone
            await asyncio.sleep(0)  # requests go on between two batches
        deliveries = 0
        if SinkStore.exists(self._home):
            deliveries = self.store.remove_before(sink_name(""), cutoff)
        return {"audit": entries, "deliveries": deliveries}

    def record_sweep(self, cutoff: str, removed: dict[str, int]) -> None:
        """Record that old data was removed."""
        self.audit.append(
            actor="retention",
            actor_type="system",
            action="retention.run",
            resource="retention",
            details={"before": cutoff, "removed": removed},
        )

    async def run(self) -> None:
        """Until cancelled: keep the audit log behind the journal, so that removals lose nothing."""
        while True:
            try:
                await self.catch_up()
            except BattenError as error:
                _log.warning("the audit log is not complete: %s", error)
            await asyncio.sleep(_CATCH_UP_S)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
        if self._audit is not None:
            self._audit.close()


def _refuses(error: BaseException) -> bool:
    """Whether an error says that nothing was done; a runtime that fell silent may have done it."""
    if isinstance(error, RuntimeFault):
        return not error.may_be_done
    return was_refused(error) and getattr(error, "code", "") != "RUNTIME_TIMEOUT"
