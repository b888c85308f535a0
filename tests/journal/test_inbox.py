"""What waits for the writer: handed over together, in order, and never left behind."""

import asyncio
import queue
import threading

import pytest

from batten.journal.sqlite.inbox import Inbox


async def taken_by(inbox: Inbox[int]) -> list[int] | None:
    return await asyncio.to_thread(inbox.take)


async def test_what_nobody_waits_for_is_handed_over_together_by_itself() -> None:
    inbox: Inbox[int] = Inbox()
    inbox.put(1)
    await asyncio.sleep(0)
    inbox.put(2)
    with pytest.raises(queue.Empty):
        inbox.take_more()
    assert await taken_by(inbox) == [1, 2]
    inbox.put(3)
    assert await taken_by(inbox) == [3]


async def test_many_are_handed_over_at_once() -> None:
    inbox: Inbox[int] = Inbox()
    for number in range(1000):
        inbox.put(number)
    first = inbox.take_more()
    assert first == list(range(len(first or ())))
    assert first


async def test_who_waits_has_it_handed_over_at_once() -> None:
    inbox: Inbox[int] = Inbox()
    inbox.put(1)
    inbox.hand_over()
    assert inbox.take_more() == [1]
    await asyncio.sleep(0)
    with pytest.raises(queue.Empty):
        inbox.take_more()


async def test_another_thread_does_not_overtake_what_a_loop_gathered() -> None:
    inbox: Inbox[int] = Inbox()
    inbox.put(1)
    other = threading.Thread(target=inbox.put, args=(2,))
    other.start()
    other.join()
    assert inbox.take_more() == [1, 2]


def test_what_a_loop_left_behind_comes_with_the_close() -> None:
    inbox: Inbox[int] = Inbox()

    async def leave() -> None:
        inbox.put(1)
        asyncio.get_running_loop().stop()

    loop = asyncio.new_event_loop()
    task = loop.create_task(leave())
    loop.run_forever()
    task.result()
    loop.close()
    inbox.close()
    assert inbox.take() == [1]
    assert inbox.take() is None


def test_a_second_loop_is_not_taken_for_the_first() -> None:
    inbox: Inbox[int] = Inbox()

    async def put(item: int) -> None:
        inbox.put(item)

    async def put_and_take(item: int) -> list[int] | None:
        inbox.put(item)
        return await taken_by(inbox)

    for work in (put(1), put_and_take(2)):
        loop = asyncio.new_event_loop()
        taken = loop.run_until_complete(work)
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
    assert taken == [1, 2]
