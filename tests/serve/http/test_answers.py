"""Answers that requests share, and requests that are counted because they may write."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct

from batten.control.retention import Retention, RetentionPolicy
from batten.serve.http.app import App
from batten.serve.http.fanout import Fanout
from batten.serve.http.hecate.service import Service
from batten.serve.http.hecate.surface import hecate
from batten.serve.http.server import ServeOptions, open_server
from tests.control.given import Place, said
from tests.serve.http.wire import clients


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.opener.close()


class Made(Struct):
    number: int


def _service(place: Place) -> Service:
    retention = Retention(place.opener.home, place.tasks.seal_key, RetentionPolicy())
    return Service(place.tasks, Fanout(), retention)


async def test_requests_for_the_same_answer_make_it_once(place: Place) -> None:
    service = _service(place)
    go, made = asyncio.Event(), 0

    async def make() -> Made:
        nonlocal made
        made += 1
        number = made
        await go.wait()
        return Made(number)

    asking = [asyncio.create_task(service.cached("key", make)) for _ in range(8)]
    await asyncio.sleep(0)
    go.set()
    assert {reply.body for reply in await asyncio.gather(*asking)} == {b'{"number":1}'}
    await place.started(place.model([said("Done.")]))
    assert (await service.cached("key", make)).body == b'{"number":2}'


async def test_an_answer_begun_before_a_change_is_not_given_to_who_asks_after_it(
    place: Place,
) -> None:
    service = _service(place)
    go, made = asyncio.Event(), 0

    async def make() -> Made:
        nonlocal made
        made += 1
        number = made
        await go.wait()
        return Made(number)

    early = asyncio.create_task(service.cached("key", make))
    await asyncio.sleep(0)
    await place.started(place.model([said("Done.")]))
    late = [asyncio.create_task(service.cached("key", make)) for _ in range(3)]
    await asyncio.sleep(0)
    go.set()
    assert (await early).body == b'{"number":1}'
    assert {reply.body for reply in await asyncio.gather(*late)} == {b'{"number":2}'}


async def test_one_that_fails_leaves_the_answer_to_the_next(place: Place) -> None:
    service = _service(place)
    go, made = asyncio.Event(), 0

    async def make() -> Made:
        nonlocal made
        made += 1
        await go.wait()
        if made == 1:
            raise LookupError
        return Made(made)

    first = asyncio.create_task(service.cached("key", make))
    await asyncio.sleep(0)
    second = asyncio.create_task(service.cached("key", make))
    await asyncio.sleep(0)
    go.set()
    failed, reply = await asyncio.gather(first, second, return_exceptions=True)
    assert isinstance(failed, LookupError)
    assert not isinstance(reply, BaseException)
    assert reply.body == b'{"number":2}'


class _Counted:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def begin(self) -> None:
        self.seen.append("begin")

    def end(self) -> None:
        self.seen.append("end")


async def test_only_requests_that_may_write_are_counted_also_when_they_are_refused(
    place: Place,
) -> None:
    counted = _Counted()
    app = App([hecate(_service(place))], writing=counted)
    options = ServeOptions(home=place.opener.home, port=0)
    async with open_server(app, options) as server, clients() as opened:
        connection = await opened.connect_to(server.url)
        assert (await connection.ask("GET", "/hecate/v1/tasks")).status == 200
        assert counted.seen == []
        assert (await connection.ask("POST", "/hecate/v1/tasks", {})).status == 400
        assert (await connection.ask("POST", "/hecate/v1/tasks/task_none/start")).status == 404
    assert counted.seen == ["begin", "end"] * 2
