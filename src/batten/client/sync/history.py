"""The runs of a journal, listed and read by plain methods."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager

from batten.client import history
from batten.client.history import RunInfo
from batten.client.sync.loop_thread import LoopThread
from batten.contract.envelope import Envelope


class History:
    """The journal of one home. Each call has a thread of its own for its length."""

    def __init__(
        self,
        twin: history.History | None = None,
        *,
        env: Mapping[str, str] | None = None,
        command: Sequence[str] = (),
    ) -> None:
        self._twin = twin or history.History(env=env, command=command)

    def runs(self, *, session: str | None = None, limit: int | None = 50) -> list[RunInfo]:
        """The newest runs first; of one session, or of all. `limit` None lists all of them."""
        with _loop() as loop:
            return loop.call(self._twin.runs(session=session, limit=limit))

    def run(self, run_id: str) -> RunInfo:
        """One run."""
        with _loop() as loop:
            return loop.call(self._twin.run(run_id))

    def events(self, run_id: str, *, after: int = -1, follow: bool = False) -> Iterator[Envelope]:
        """The stored events of a run, as in `batten.client`."""
        with _loop() as loop:
            yield from loop.iterate(self._twin.events(run_id, after=after, follow=follow))


@contextmanager
def _loop() -> Generator[LoopThread, None, None]:
    loop = LoopThread()
    try:
        yield loop
    finally:
        loop.close()
