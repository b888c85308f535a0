"""Encoded answers are made again when what they were made from has changed, and not before."""

import asyncio
import time

import pytest

from batten.serve.http.answers import Answers, CurrentVersion, Expiring


class Store:
    """Its version changes with every commit, its mark with those that matter."""

    def __init__(self) -> None:
        self.number = 0
        self.mark_number = 0
        self.made = 0

    async def version(self) -> int:
        return self.number

    async def mark(self) -> int:
        return self.mark_number

    async def make(self) -> list[int]:
        self.made += 1
        return [self.mark_number]


@pytest.fixture
def store() -> Store:
    return Store()


async def test_an_answer_is_made_again_after_a_commit(store: Store) -> None:
    answers = Answers(store, 1 << 20)
    for number in range(3):
        store.number = store.mark_number = number
        for _ in range(2):
            assert (await answers.get("key", store.make)).body == f"[{number}]".encode()
    assert store.made == 3


async def test_an_equal_mark_saves_making_it_again(store: Store) -> None:
    answers = Answers(store, 1 << 20)
    for number in range(4):
        store.number, store.mark_number = number, number // 2
        reply = await answers.get("key", store.make, store.mark)
        assert reply.body == f"[{number // 2}]".encode()
    assert store.made == 2


async def test_requests_at_once_share_one_answer(store: Store) -> None:
    answers = Answers(store, 1 << 20)
    goes_on = asyncio.Event()

    async def make() -> bytes:
        store.made += 1
        await goes_on.wait()
        return b"{}"

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        asked = [group.create_task(answers.get("key", make)) for _ in range(5)]
        await asyncio.sleep(0)
        goes_on.set()
    assert {one.result().body for one in asked} == {b"{}"}
    assert store.made == 1


async def test_a_failure_is_not_kept(store: Store) -> None:
    answers = Answers(store, 1 << 20)

    async def fail() -> bytes:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await answers.get("key", fail)
    assert (await answers.get("key", store.make)).body == b"[0]"


async def test_an_answer_ends_with_its_time(store: Store) -> None:
    answers = Answers(store, 1 << 20)
    until = round(time.time() * 1000) + 3_600_000

    async def make() -> Expiring:
        store.made += 1
        return Expiring(b"{}", until)

    for _ in range(3):
        await answers.get("key", make, store.mark)
    assert store.made == 1
    until = 1
    store.mark_number = store.number = 1
    for _ in range(3):
        await answers.get("key", make, store.mark)
    assert store.made == 4


async def test_a_version_holds_for_one_turn_of_the_loop(store: Store) -> None:
    current = CurrentVersion(store)
    seen: list[int] = []

    async def ask() -> None:
        seen.append(await current.version())
        store.number += 1

    for _ in range(2):
        await asyncio.gather(*(ask() for _ in range(3)))
    assert seen == [0, 0, 0, 3, 3, 3]
