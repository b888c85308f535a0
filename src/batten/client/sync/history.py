"""The runs of a journal, listed and read by plain methods."""

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from batten.client import history
from batten.client.sync.loop_thread import LoopThread
from batten.contract.envelope import Envelope

P = ParamSpec("P")
Value = TypeVar("Value")


def _waiting(
    method: Callable[Concatenate[history.History, P], Coroutine[Any, Any, Value]],
) -> Callable[Concatenate["History", P], Value]:
    @wraps(method)
    def call(own: "History", /, *args: P.args, **kwargs: P.kwargs) -> Value:
        with LoopThread() as loop:
            return loop.call(method(own.twin, *args, **kwargs))

    return call


class History:
    """The journal of one home. Each call has a thread of its own for its length."""

    def __init__(
        self,
        twin: history.History | None = None,
        *,
        env: Mapping[str, str] | None = None,
        command: Sequence[str] = (),
    ) -> None:
        self.twin = twin or history.History(env=env, command=command)

    runs = _waiting(history.History.runs)
    run = _waiting(history.History.run)

    def events(self, run_id: str, *, after: int = -1, follow: bool = False) -> Iterator[Envelope]:
        """The stored events of a run, as in `batten.client`."""
        with LoopThread() as loop:
            yield from loop.iterate(self.twin.events(run_id, after=after, follow=follow))
