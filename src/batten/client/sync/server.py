"""A service with plain methods. Each waits for its twin in `batten.client`."""

from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from batten.client import server as twins
from batten.client.frames import SILENT_S
from batten.client.sync.loop_thread import Call, LoopThread
from batten.contract.envelope import Envelope

P = ParamSpec("P")
Value = TypeVar("Value")


def _waiting(
    method: Callable[Concatenate[twins.Server, P], Coroutine[Any, Any, Value]],
) -> Callable[Concatenate["Server", P], Value]:
    @wraps(method)
    def call(own: "Server", /, *args: P.args, **kwargs: P.kwargs) -> Value:
        return own.loop.call(method(own.twin, *args, **kwargs))

    return call


class Server:
    """A connection to a service, as in `batten.client`."""

    def __init__(self, loop: LoopThread, twin: twins.Server) -> None:
        self.loop = loop
        self.twin = twin

    start = _waiting(twins.Server.start)
    go_on = _waiting(twins.Server.go_on)
    ask = _waiting(twins.Server.ask)
    result = _waiting(twins.Server.result)
    runs = _waiting(twins.Server.runs)
    run = _waiting(twins.Server.run)
    requests = _waiting(twins.Server.requests)
    allow = _waiting(twins.Server.allow)
    deny = _waiting(twins.Server.deny)
    cancel = _waiting(twins.Server.cancel)
    artifacts = _waiting(twins.Server.artifacts)
    body = _waiting(twins.Server.body)
    diff = _waiting(twins.Server.diff)

    def events(self, run_id: str, *, after: int = -1, follow: bool = False) -> Iterator[Envelope]:
        """The stored events of a run, as in `batten.client`."""
        yield from self.loop.iterate(self.twin.events(run_id, after=after, follow=follow))


@contextmanager
def connect(
    server: str = "", *, key: str = "", silent_s: float = SILENT_S, patience_s: float = 60.0
) -> Generator[Server, None, None]:
    """A service, as in `batten.client`; it has a thread of its own."""
    scope = twins.connect(server, key=key, silent_s=silent_s, patience_s=patience_s)
    with LoopThread() as loop, Call(loop).hold(scope) as twin:
        yield Server(loop, twin)
