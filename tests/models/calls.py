"""Short ways to put a question to a model in tests, and to read an answer without a network."""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from batten.contract.conversation import Message, Text
from batten.contract.errors import PeerError, ProviderError
from batten.models.contract import BlockDone, Done, Model, ModelEvent, ModelRequest
from batten.models.exchange import Dialect
from batten.models.faults import broken
from batten.models.http import Timeouts
from batten.models.registry import open_model
from tests.models.server import ModelServer, Reply

FAST = Timeouts(connect_s=5, first_byte_s=5, idle_s=5)


def ask(text: str = "Hello", **more: Any) -> ModelRequest:
    more.setdefault("model", "unnamed")
    more.setdefault("messages", (Message("user", (Text(text),)),))
    return ModelRequest(**more)


async def gather(stream: AsyncIterator[Any]) -> list[Any]:
    return [event async for event in stream]


async def converse(
    name: str,
    replies: Sequence[Reply],
    request: ModelRequest | None = None,
    *,
    timeouts: Timeouts = FAST,
) -> tuple[list[ModelEvent], ModelServer]:
    """One call over real HTTP: its events, and the server with what it was asked."""
    async with ModelServer(replies) as server:
        model = open_model(name, server.environ(), timeouts=timeouts)
        try:
            events = await gather(model.stream(_named(model, request or ask())))
        finally:
            await model.aclose()
    return events, server


async def failure(
    name: str, replies: Sequence[Reply], *, timeouts: Timeouts = FAST
) -> ProviderError:
    """The error a call over real HTTP ends in."""
    try:
        events, _ = await converse(name, replies, timeouts=timeouts)
    except ProviderError as error:
        return error
    raise AssertionError(f"the call went well: {events}")


def _named(model: Model, request: ModelRequest) -> ModelRequest:
    from msgspec.structs import replace

    return replace(request, model=model.name)


def fold(dialect: Dialect, chunks: Iterable[bytes]) -> list[ModelEvent] | str:
    """What an answer's bytes mean without a network: its events, or the code of its error."""
    decoder, reader = dialect.decoder(), dialect.reader()
    events: list[ModelEvent] = []
    try:
        try:
            for chunk in chunks:
                for payload in decoder.receive(chunk):
                    for event in reader.read(payload):
                        events.append(event)
                        if isinstance(event, Done):
                            return events
            for payload in decoder.finish():
                events.extend(reader.read(payload))
            if not (events and isinstance(events[-1], Done)):
                events.extend(reader.finish())
        except PeerError as error:
            raise broken(dialect.provider, str(error)) from error
    except ProviderError as error:
        return error.code
    return events if events and isinstance(events[-1], Done) else "model_protocol"


def contents(events: Iterable[ModelEvent]) -> list[object]:
    """The whole blocks of an answer, in order."""
    return [event.content for event in events if isinstance(event, BlockDone)]


def done(events: Sequence[ModelEvent]) -> Done:
    last = events[-1]
    assert isinstance(last, Done)
    return last
