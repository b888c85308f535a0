"""What waits for the writer: handed over by rounds, in order, and never left behind."""

import asyncio
import queue
import threading

import pytest

from batten.journal.sqlite.inbox import Inbox


async def test_what_one_round_puts_is_handed_over_together_at_its_end() -> None:
    inbox: Inbox[int] = Inbox()
    inbox.put(1)
    inbox.put(2)
    with pytest.raises(queue.Empty):
        inbox.take_more()
    await asyncio.sleep(0)
    assert inbox.take_more() == [1, 2]
    inbox.put(3)
    await asyncio.sleep(0)
    assert inbox.take_more() == [3]


async def test_who_waits_has_it_handed_over_at_once() -> None:
    inbox: Inbox[int] = Inbox()
    inbox.put(1)
    inbox.hand_over()
    assert inbox.take_more() == [1]
    await asyncio.sleep(0)
    with pytest.raises(queue.Empty):
        inbox.take_more()


async def test_another_thread_does_not_overtake_what_a_round_gathered() -> None:
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

    for item in (1, 2):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(put(item))
        loop.close()
    inbox.hand_over()
    taken: list[int] = []
    while True:
        try:
            taken += inbox.take_more() or []
        except queue.Empty:
            break
    assert taken == [1, 2]
