"""A hosted runner over its life: open to clients, and from its first drain on never again."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from batten.contract.errors import NotReady
from batten.runner.drain import Drained, Record, checked, hand_over
from batten.runner.flush import NOTHING, Drainable, Flush, flush
from batten.runner.identity import Identity, IdentityAnswer, answer
from batten.runner.request import DrainRequest
from batten.runner.restore import Restored


class Runner:
    """Who it is, and whether it takes clients."""

    def __init__(
        self,
        identity: Identity,
        *,
        restored: Restored | None = None,
        now: Callable[[], float] = time.time,
        record: Record | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`record` is given the evidence of each drain; secrets of `environ` are not written."""
        self.identity = identity
        self.restored = restored
        self.draining = False
        self._now = now
        self._record = record
        self._environ = environ or {}
        self._one_drain = asyncio.Lock()
        self._flushed: Flush | None = None
        """What is still to be written, if it is not to be tried again, or that there is nothing."""

    @property
    def ready(self) -> bool:
        is_whole = self.restored is None or self.restored.is_ready
        return is_whole and not self.draining and os.path.isdir(self.identity.workspace_root)

    def answer(self) -> IdentityAnswer:
        """What it says of itself."""
        return answer(self.identity, ready=self.ready, draining=self.draining)

    def check_ready(self) -> None:
        """Raises `NotReady` where nobody may attach or send anything."""
        if self.draining:
            raise NotReady("Hosted runner is draining")
        if self.restored is not None and not self.restored.is_ready:
            raise NotReady(f"Hosted runner is not ready: {self.restored.error}")

    async def drain(
        self, request: DrainRequest, runtime: Drainable | None, bound: str | None = None
    ) -> Drained:
        """Take no more clients, whatever comes of it; stop `runtime` (None if there is none any
        more) and write the manifest. One at a time.

        What is asked is checked before anything is stopped: a request that is refused costs
        nothing. A manifest that could not be written can be asked for again. `bound` is the
        session that was served, for who has no runtime to say so any more.
        """
        self.draining = True
        identity = replace(
            self.identity, maestro_session_id=bound or self.identity.maestro_session_id
        )
        async with self._one_drain:
            scope = await checked(request, identity)
            if self._flushed is None or self._flushed.status == "failed":
                self._flushed = await flush(runtime)
            drained = await hand_over(
                request,
                identity,
                scope,
                self._flushed,
                self._now(),
                self._record,
                self._environ,
            )
            if drained.status == "drained":
                self._flushed = NOTHING
            return drained
