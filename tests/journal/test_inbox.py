"""What waits to be written: taken together, in order, and never left behind."""

import asyncio
import threading

from batten.journal.sqlite.inbox import Inbox

ALL = 1000


async def rung(inbox: Inbox[int]) -> bool:
    return await asyncio.to_thread(inbox.wait)


async def test_what_nobody_waits_for_is_taken_together_by_itself() -> None:
    inbox: Inbox[int] = Inbox()
    inbox.put(1)
    await asyncio.sleep(0)
    inbox.put(2)
    assert await rung(inbox)
    assert inbox.take(ALL) == [1, 2]
    inbox.put(3)
    assert await rung(inbox)
    assert inbox.take(ALL) == [3]


async def test_many_are_not_left_to_lie() -> None:
    inbox: Inbox[int] = Inbox()
    for number in range(ALL):
        inbox.put(number)
    assert inbox.wait()  # though no loop ran meanwhile
    assert inbox.take(2) == [0, 1]
    assert inbox.take(ALL) == list(range(2, ALL))


async def test_who_takes_what_lay_there_leaves_nothing_to_ring_for() -> None:
    inbox: Inbox[int] = Inbox()
    inbox.put(1)
    assert inbox.take(ALL) == [1]
    inbox.ring()
    inbox.put(2)
    assert await rung(inbox)
    assert inbox.take(ALL) == [2]


async def test_another_thread_does_not_overtake_what_a_loop_gathered() -> None:
    inbox: Inbox[int] = Inbox()
    inbox.put(1)
    other = threading.Thread(target=inbox.put, args=(2,))
    other.start()
    other.join()
    assert inbox.wait()
    assert inbox.take(ALL) == [1, 2]


def test_what_a_loop_left_behind_is_there_after_the_close() -> None:
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
    assert not inbox.wait()
    assert inbox.take(ALL) == [1]


def test_a_second_loop_is_not_taken_for_the_first() -> None:
    inbox: Inbox[int] = Inbox()

    async def put() -> None:
        inbox.put(1)

    async def put_and_wait() -> None:
        inbox.put(2)
        assert await rung(inbox)

    for work in (put(), put_and_wait()):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(work)
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
    assert inbox.take(ALL) == [1, 2]
