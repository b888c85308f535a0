"""Calls to a client: each response reaches its own call once, or the call learns why not."""

import asyncio

import pytest

from batten.serve.client_calls import ClientCalls, ClientGone

PATIENCE_S = 5.0


class Client:
    """Remembers what it was sent."""

    def __init__(self) -> None:
        self.calls: ClientCalls[str, int] = ClientCalls(lambda number: f"c{number}")
        self.sent: list[str] = []
        self.withdrawn: list[str] = []

    def call(self) -> "asyncio.Task[int]":
        return asyncio.ensure_future(self.calls.call(self.sent.append, self.withdrawn.append))


async def test_responses_find_their_calls_in_any_order() -> None:
    client = Client()
    async with asyncio.timeout(PATIENCE_S):
        calls = [client.call() for _ in range(3)]
        await asyncio.sleep(0)
        for number in (2, 0, 1):
            client.calls.respond(f"c{number}", number)
        assert await asyncio.gather(*calls) == [0, 1, 2]
    assert client.sent == ["c0", "c1", "c2"]
    assert client.withdrawn == []


async def test_a_second_response_and_one_to_no_call_are_dropped() -> None:
    client = Client()
    call = client.call()
    await asyncio.sleep(0)
    client.calls.respond("c7", 7)
    client.calls.respond("c0", 1)
    client.calls.respond("c0", 2)
    assert await call == 1
    client.calls.respond("c0", 3)


async def test_a_cancelled_call_is_withdrawn() -> None:
    client = Client()
    call = client.call()
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert client.withdrawn == ["c0"]


async def test_pending_and_later_calls_are_told_that_the_client_is_gone() -> None:
    client = Client()
    call = client.call()
    await asyncio.sleep(0)
    client.calls.close()
    with pytest.raises(ClientGone):
        await call
    with pytest.raises(ClientGone):
        await client.call()
    assert client.sent == ["c0"]
    assert client.withdrawn == []


async def test_a_call_that_cannot_be_sent_is_not_pending() -> None:
    calls: ClientCalls[int, int] = ClientCalls(lambda number: number)

    def refuse(call_id: int) -> None:
        raise ValueError(call_id)

    with pytest.raises(ValueError, match="0"):
        await calls.call(refuse, refuse)
    calls.close()
