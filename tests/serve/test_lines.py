"""Lines from real pipes and files: whole, bounded, and at the pace of whoever takes them."""

import asyncio
import fcntl
import os
import threading
import tracemalloc
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batten.serve.lines import Line, Lines, ReadFailed, TooLong
from tests.examples import examples

MEGABYTE = 1 << 20
PATIENCE_S = 30


class Pipe:
    """A pipe whose writer is a thread, so that it can be made to wait."""

    def __init__(self) -> None:
        self.end, self._in = os.pipe()
        self._threads: list[threading.Thread] = []
        self.written = 0

    def write(self, *pieces: bytes, times: int = 1) -> None:
        """Write these and close, from another thread."""
        thread = threading.Thread(target=self._write, args=(pieces, times))
        self._threads.append(thread)
        thread.start()

    def _write(self, pieces: tuple[bytes, ...], times: int) -> None:
        with suppress(BrokenPipeError):
            for _ in range(times):
                for piece in pieces:
                    self.written += os.write(self._in, piece)
        os.close(self._in)

    def write_now(self, piece: bytes) -> None:
        os.write(self._in, piece)

    def hold_little(self) -> None:
        """One page, so that a writer soon has to wait."""
        fcntl.fcntl(self.end, fcntl.F_SETPIPE_SZ, 4096)

    def close(self) -> None:
        os.close(self._in)

    def forget(self) -> None:
        os.close(self.end)
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


@pytest.fixture
def pipe() -> Generator[Pipe, None, None]:
    made = Pipe()
    yield made
    made.forget()


async def taken(descriptor: int, longest: int = 1000) -> list[Line]:
    async with asyncio.timeout(PATIENCE_S):
        return [line async for line in Lines(descriptor, longest=longest)]


def expected(data: bytes, longest: int) -> list[Line]:
    """What a reader of all of it at once would make of it."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    known = min(512, longest)
    return [TooLong(line[:known]) if len(line) > longest else line for line in lines]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place for place in places if place < len(data)} | {len(data)})
    starts = [0, *ends]
    return [data[start:end] for start, end in zip(starts, ends, strict=False) if end > start]


@settings(deadline=None, max_examples=examples(60))
@given(
    st.lists(st.sampled_from([b"\n", b"a", b"\xff", b"\r\n", b"\0", b"{}", b"x" * 9])).map(
        b"".join
    ),
    st.lists(st.integers(0, 60), max_size=5),
)
def test_lines_are_the_same_however_their_bytes_arrive(data: bytes, places: list[int]) -> None:
    pipe = Pipe()
    try:
        pipe.write(*cut(data, places))
        assert asyncio.run(taken(pipe.end, 8)) == expected(data, 8)
    finally:
        pipe.forget()


async def test_a_line_is_given_as_soon_as_it_ends(pipe: Pipe) -> None:
    lines = aiter(Lines(pipe.end, longest=100))
    async with asyncio.timeout(PATIENCE_S):
        pipe.write_now(b"one\ntw")
        assert await anext(lines) == b"one"
        pipe.write_now(b"o\n")
        assert await anext(lines) == b"two"
        pipe.write_now(b"half")
        pipe.close()
        assert await anext(lines) == b"half"
        with pytest.raises(StopAsyncIteration):
            await anext(lines)


async def test_what_comes_together_is_given_without_waiting_in_between(pipe: Pipe) -> None:
    lines = aiter(Lines(pipe.end, longest=100))
    async with asyncio.timeout(PATIENCE_S):
        pipe.write_now(b"do it\nthis too\nstop\n")
        assert await anext(lines) == b"do it"
    for line in (b"this too", b"stop"):
        with pytest.raises(StopIteration) as given_at_once:
            lines.__anext__().__await__().__next__()
        assert given_at_once.value.value == line


async def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"one\n\n" + b"x" * 200_000 + b"\nlast")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert await taken(descriptor, MEGABYTE) == [b"one", b"", b"x" * 200_000, b"last"]
    finally:
        os.close(descriptor)


async def test_nothing_at_all_is_no_line() -> None:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    try:
        assert await taken(descriptor) == []
    finally:
        os.close(descriptor)


async def test_a_line_of_exactly_the_limit_is_kept_and_a_longer_one_is_not(pipe: Pipe) -> None:
    pipe.write(b"x" * 100 + b"\n" + b"x" * 101 + b"\nnext\n")
    assert await taken(pipe.end, 100) == [b"x" * 100, TooLong(b"x" * 100), b"next"]


async def test_a_line_that_does_not_end_is_refused_once_it_is_too_long(pipe: Pipe) -> None:
    lines = aiter(Lines(pipe.end, longest=100))
    async with asyncio.timeout(PATIENCE_S):
        pipe.write_now(b"one\n" + b"x" * 101)
        assert await anext(lines) == b"one"
        assert await anext(lines) == TooLong(b"x" * 100)
        pipe.write_now(b"x" * 1000)
        pipe.write_now(b"x\ntwo\n")
        assert await anext(lines) == b"two"
        pipe.close()
        with pytest.raises(StopAsyncIteration):
            await anext(lines)


async def test_a_line_of_a_hundred_megabytes_is_skipped_in_little_memory(pipe: Pipe) -> None:
    pipe.write(b"x" * MEGABYTE, times=100)
    tracemalloc.start()
    try:
        lines = await taken(pipe.end, MEGABYTE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert lines == [TooLong(b"x" * 512)]
    assert peak < 8 * MEGABYTE


@pytest.mark.parametrize("piece", [b"\n" * 1024, b"a line of some length\n" * 300])
async def test_a_flood_waits_for_whoever_takes_it(pipe: Pipe, piece: bytes) -> None:
    pipe.hold_little()
    pipe.write(piece, times=100)
    lines = aiter(Lines(pipe.end, longest=32 * 1024))
    async with asyncio.timeout(PATIENCE_S):
        await anext(lines)
        before = -1
        while before != pipe.written:  # until it waits: one more look finds nothing new
            before = pipe.written
            await asyncio.sleep(0.2)
        assert pipe.written < len(piece) * 50, "the pipe, what was read at once, and the queue"
        count = 1
        async for _ in lines:
            count += 1
    assert count == piece.count(b"\n") * 100


async def test_the_descriptor_is_left_as_it_is(pipe: Pipe) -> None:
    before = fcntl.fcntl(pipe.end, fcntl.F_GETFL)
    lines = aiter(Lines(pipe.end, longest=100))
    pipe.write_now(b"one\n")
    assert await anext(lines) == b"one"
    assert fcntl.fcntl(pipe.end, fcntl.F_GETFL) == before
    assert not before & os.O_NONBLOCK
    pipe.close()
    with pytest.raises(StopAsyncIteration):
        await anext(lines)


async def test_what_cannot_be_read_is_said_after_what_could(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        assert await taken(descriptor) == [ReadFailed("Is a directory")]
    finally:
        os.close(descriptor)


async def test_a_taker_that_leaves_does_not_wait_for_a_writer_that_stays(pipe: Pipe) -> None:
    async def take() -> None:
        async for _ in Lines(pipe.end, longest=100):
            pass

    task = asyncio.create_task(take())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(PATIENCE_S):
            await task
    pipe.close()


def test_a_thread_that_reads_on_does_not_mind_that_its_loop_is_gone(pipe: Pipe) -> None:
    async def take_one() -> Line:
        return await anext(aiter(Lines(pipe.end, longest=100)))

    others = set(threading.enumerate())
    pipe.write_now(b"one\n")
    assert asyncio.run(take_one()) == b"one"
    pipe.write_now(b"two\n" * 10)
    pipe.close()
    for reader in set(threading.enumerate()) - others:
        reader.join(PATIENCE_S)
        assert not reader.is_alive()
