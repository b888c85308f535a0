"""A plain sink for the tests of the reader: every fact is a message, a script says what becomes of
it."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from batten.contract.envelope import Envelope
from batten.contract.facts import FACTS
from batten.sinks.contract import Attempt, Message, Sink
from batten.sinks.reader import SinkReader
from batten.sinks.store import SinkStore

OK = Attempt(result="delivered", status=200)
DOWN = Attempt(result="retry", problem="connection refused")
BAD = Attempt(result="refused", status=400, problem="it never takes this")


class Clock:
    """Time that only a test moves."""

    def __init__(self) -> None:
        self.seconds = 2_000_000_000.0

    def __call__(self) -> float:
        return self.seconds


class EveryFact:
    def take(self, envelope: Envelope) -> Iterable[Message]:
        yield Message(
            message_id=f"{envelope.run_id}/{envelope.sequence}",
            run_id=envelope.run_id,
            type=envelope.type,
            occurred_at=envelope.occurred_at,
            body=str(envelope.sequence).encode(),
        )


def every_fact(run_id: str) -> EveryFact:
    return EveryFact()


class Receiver:
    """Takes every message, unless told otherwise."""

    def __init__(self) -> None:
        self.taken: list[Message] = []
        self.tries: list[Message] = []
        self.answer: Callable[[Message], Attempt | Awaitable[Attempt]] = lambda message: OK
        self.closed = 0

    async def send(self, message: Message) -> Attempt:
        self.tries.append(message)
        answer = self.answer(message)
        if not isinstance(answer, Attempt):
            answer = await answer
        if answer.result == "delivered":
            self.taken.append(message)
        return answer

    async def aclose(self) -> None:
        self.closed += 1

    def of(self, run_id: str) -> list[int]:
        """The sequences of a run's messages, as they were taken."""
        return [int(one.body) for one in self.taken if one.run_id == run_id]


def sink(receiver: Receiver, name: str = "plain", **more: Any) -> Sink:
    usual: dict[str, Any] = {"fold": every_fact, "from_start": True}
    return Sink(name=name, types=frozenset(FACTS), connect=lambda: receiver, **(usual | more))


async def settle(reader: SinkReader) -> float | None:
    """Step until there is nothing to do at once; what the last step returned."""
    while (pause := await reader.step()) == 0:
        pass
    return pause


async def pass_time(reader: SinkReader, store: SinkStore, clock: Clock, seconds: float) -> None:
    """Let time pass, with every step at its time."""
    end = clock.seconds + seconds
    while True:
        pause = await settle(reader)
        if pause is None or clock.seconds + pause > end:
            break
        clock.seconds += pause
    clock.seconds = end
    await settle(reader)
