"""A hosted runner: open to clients until its first accepted drain."""

import asyncio
import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from msgspec.structs import replace

from batten.contract.errors import NotReady
from batten.runner.drain import Drained, Record, checked, hand_over
from batten.runner.flush import Drainable, Flush, flush
from batten.runner.identity import Identity, IdentityAnswer, answer
from batten.runner.request import DrainRequest
from batten.runner.restore import Restored


class Runner:
    """Identity and readiness of a runner, and its drain."""

    def __init__(
        self,
        identity: Identity,
        *,
        restored: Restored | None = None,
        now: Callable[[], float] = time.time,
        record: Record | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`record` receives the evidence of each drain; secrets of `environ` are not written."""
        self.identity = identity
        self.bound = identity.maestro_session_id
        """The session that this runner serves; None until it is known."""
        self.restored = restored
        self._is_drained = False
        """Whether a drain was accepted, whatever came of it."""
        self._drains = 0
        """Drains in progress, those that may still be refused included."""
        self._now = now
        self._record = record
        self._environ = environ or {}
        self._one_drain = asyncio.Lock()
        self._flushed: Flush | None = None
        """The result of the last flush, reused when writing the manifest is tried again."""
        self.drained: Drained | None = None
        """The last drain."""

    @property
    def ready(self) -> bool:
        is_whole = self.restored is None or self.restored.is_ready
        return is_whole and not self.draining and os.path.isdir(self.identity.workspace_root)

    @property
    def draining(self) -> bool:
        """True from the moment a drain is requested; for ever, unless it is refused."""
        return self._is_drained or self._drains > 0

    @contextmanager
    def turning_away(self) -> Generator[None]:
        """Accept no clients in this context, in which a drain is requested."""
        self._drains += 1
        try:
            yield
        finally:
            self._drains -= 1

    def answer(self) -> IdentityAnswer:
        return answer(self.identity, ready=self.ready, draining=self.draining)

    def check_ready(self) -> None:
        """Raises `NotReady` if clients may not attach or send."""
        if self.draining:
            raise NotReady("Hosted runner is draining")
        if self.restored is not None and not self.restored.is_ready:
            raise NotReady(f"Hosted runner is not ready: {self.restored.error}")

    def check_attachable(self) -> None:
        """Raises `NotReady` if new clients may not attach: `ready` is false."""
        self.check_ready()
        if not self.ready:
            raise NotReady("Hosted runner workspace root is unavailable")

    async def drain(
        self, request: DrainRequest, runtime: Drainable | None, bound: str | None = None
    ) -> Drained:
        """Stop `runtime` (None if it is gone) and write the manifest; one drain at a time.

        Takes no more clients from now on, even if the drain fails. The request is checked before
        anything stops: a refused one changes nothing, and clients may come again. A complete drain
        is not repeated: its result is returned again. A manifest that could not be written, or an
        interrupted drain, can be requested again. `bound` is the session that was served, in case
        the runtime is gone.
        """
        with self.turning_away():
            return await self._drain(request, runtime, bound)

    async def _drain(
        self, request: DrainRequest, runtime: Drainable | None, bound: str | None
    ) -> Drained:
        identity = replace(
            self.identity, maestro_session_id=bound or self.identity.maestro_session_id
        )
        async with self._one_drain:
            scope = await checked(request, identity)
            self._is_drained = True
            if self.drained is not None and self.drained.status == "drained":
                return self.drained
            if self._flushed is None or self._flushed.status == "failed":
                self._flushed = await self._flush(runtime)
            self.drained = await hand_over(
                request,
                identity,
                scope,
                self._flushed,
                self._now(),
                self._record,
                self._environ,
            )
            return self.drained

    async def _flush(self, runtime: Drainable | None) -> Flush:
        """Stop `runtime`. One that was restored only to be inspected is handed on as it was."""
        restored = self.restored
        if runtime is not None or restored is None or restored.is_ready:
            return await flush(runtime)
        return Flush(
            status="skipped",
            snapshot=restored.snapshot,
            cursor=restored.cursor,
            session_file=restored.kept,
            error=restored.error,
        )
