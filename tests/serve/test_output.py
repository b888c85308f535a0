"""Frames into real pipes, sockets and files: whole, in order, and never at the loop's expense."""

import asyncio
import os
import random
import socket
import threading
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest

from batten.serve.output import Output

PATIENCE_S = 60
PIECE = 4096


class Pipe:
    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self._open = {self.reading, self.writing}

    def fill(self) -> int:
        """Write until it takes nothing more; how much that was."""
        os.set_blocking(self.writing, False)
        size = 0
        with suppress(BlockingIOError):
            while True:
                size += os.write(self.writing, b"x" * PIECE)
        os.set_blocking(self.writing, True)
        return size

    def read(self, size: int, most: int = 1 << 16) -> bytes:
        """Exactly so many bytes, a few at a time."""
        found = b""
        while len(found) < size and (piece := os.read(self.reading, min(most, size - len(found)))):
            found += piece
        return found

    def close(self, descriptor: int) -> None:
        self._open.discard(descriptor)
        os.close(descriptor)

    def forget(self) -> None:
        for descriptor in self._open:
            os.close(descriptor)


@pytest.fixture
def pipe() -> Generator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.forget()


def _has_thread() -> bool:
    return any(thread.name == "output" for thread in threading.enumerate())


async def test_what_the_reader_takes_at_once_needs_no_thread(pipe: Pipe) -> None:
    before = set(threading.enumerate())
    output = Output(pipe.writing)
    for number in range(10):
        output.write(b"%d\n" % number)
        await asyncio.sleep(0)
    assert pipe.read(20) == b"".join(b"%d\n" % number for number in range(10))
    assert set(threading.enumerate()) <= before
    assert output.stalled_s == 0.0


async def test_frames_of_one_round_are_written_together_and_none_is_cut(pipe: Pipe) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    output = Output(ours.fileno())
    frames = [b"%03d " % number + b"y" * 300 + b"\n" for number in range(100)]
    for frame in frames:
        output.write(frame)
    await output.drained(PATIENCE_S)
    ours.close()
    writes = list(iter(lambda: theirs.recv(1 << 16), b""))
    theirs.close()
    assert b"".join(writes) == b"".join(frames)
    assert all(write.endswith(b"\n") and len(write) <= PIECE for write in writes)
    assert len(writes) <= len(b"".join(frames)) // (PIECE - 305) + 1


async def test_a_reader_that_is_slow_gets_every_frame_in_order(pipe: Pipe) -> None:
    chance = random.Random(7)
    sizes = [chance.choice([1, 80, 4095, 4096, 4097, 30_000]) for _ in range(120)]
    frames = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    output = Output(pipe.writing)
    filled = pipe.fill()
    for number, frame in enumerate(frames):
        output.write(frame)
        if not number % 7:
            await asyncio.sleep(0)
    assert os.get_blocking(pipe.writing)
    whole = await asyncio.to_thread(pipe.read, filled + sum(sizes), 5000)
    await output.drained(PATIENCE_S)
    assert whole[filled:] == b"".join(frames)
    assert output.stalled_s == 0.0
    # Once it has caught up, nothing goes through the thread any more.
    output.write(b"again\n")
    await asyncio.sleep(0)
    assert pipe.read(6) == b"again\n"


async def test_who_writes_waits_for_room_and_is_woken_when_there_is_some(pipe: Pipe) -> None:
    output = Output(pipe.writing)
    pipe.fill()
    for _ in range(30):
        output.write(b"z" * 50_000)
    waiting = asyncio.ensure_future(output.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    reading = threading.Thread(target=pipe.read, args=(1_200_000,))
    reading.start()
    async with asyncio.timeout(PATIENCE_S):
        await waiting
    assert output.has_room
    await asyncio.to_thread(reading.join)


async def test_all_who_wait_for_room_are_woken(pipe: Pipe) -> None:
    output = Output(pipe.writing)
    pipe.fill()
    for _ in range(30):
        output.write(b"z" * 50_000)
    waiting = [asyncio.ensure_future(output.room()) for _ in range(3)]
    await asyncio.sleep(0)
    reading = threading.Thread(target=pipe.read, args=(1_200_000,))
    reading.start()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*waiting)
    await asyncio.to_thread(reading.join)


async def test_a_reader_that_takes_nothing_is_given_up_in_time(pipe: Pipe) -> None:
    output = Output(pipe.writing)
    pipe.fill()
    output.write(b"never read\n")
    async with asyncio.timeout(PATIENCE_S):
        await output.drained(0.05)
    assert output.stalled_s >= 0.05


async def test_that_the_reader_went_away_is_told_once(pipe: Pipe) -> None:
    output = Output(pipe.writing)
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    calls: list[int] = []

    def tell() -> None:
        calls.append(1)
        loop.call_soon_threadsafe(told.set)

    output.on_closed(tell)
    pipe.close(pipe.reading)
    async with asyncio.timeout(PATIENCE_S):
        # A process that another thread starts now, or one that looks at our descriptors, keeps the
        # reading end open a moment longer: so much is taken as if it were read.
        while not told.is_set():
            output.write(b"to nobody\n")
            await asyncio.sleep(0)
        await output.drained(PATIENCE_S)
    output.write(b"nor this\n")
    await output.room()
    assert (output.closed, output.stalled_s, calls) == (True, 0.0, [1])


async def test_a_blocked_loop_does_not_keep_back_the_last_words(pipe: Pipe) -> None:
    output = Output(pipe.writing)
    output.write(b"first\n")

    def last_words() -> None:
        output.write(b"last\n")
        output.drain(PATIENCE_S)

    thread = threading.Thread(target=last_words)
    thread.start()
    thread.join(PATIENCE_S)  # the loop stands still meanwhile
    assert pipe.read(11) == b"first\nlast\n"


def test_frames_of_a_loop_that_has_ended_are_written_before_those_after_it(pipe: Pipe) -> None:
    output = Output(pipe.writing)

    async def say() -> None:
        output.write(b"in the loop\n")

    loop = asyncio.new_event_loop()
    with suppress(RuntimeError):
        task = loop.create_task(say())
        task.add_done_callback(lambda _: loop.stop())
        loop.run_forever()
    loop.close()
    output.write(b"after it\n")
    output.drain(PATIENCE_S)
    assert pipe.read(21) == b"in the loop\nafter it\n"


def test_without_a_loop_the_thread_writes_and_nobody_has_to_ask(pipe: Pipe) -> None:
    output = Output(pipe.writing)
    output.write(b"a version\n")
    assert pipe.read(10) == b"a version\n"


async def test_a_file_is_written_by_the_thread(tmp_path: Path) -> None:
    path = tmp_path / "out"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    output = Output(descriptor)
    frames = [b"%d\n" % number for number in range(1000)]
    for frame in frames:
        output.write(frame)
    await output.drained(PATIENCE_S)
    os.close(descriptor)
    assert path.read_bytes() == b"".join(frames)
    assert _has_thread()


def test_a_thread_that_could_not_start_is_started_for_the_next_frame(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    output = Output(pipe.writing)
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", no_room)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            output.write(b"one\n")
    output.write(b"two\n")
    output.drain(PATIENCE_S)
    assert output.is_empty
    assert pipe.read(8) == b"one\ntwo\n"
    output.close()
