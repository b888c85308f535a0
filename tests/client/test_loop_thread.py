"""Calls into the loop of the client without `async`, interrupted at the worst moments."""

import errno
import os
import signal
import threading
from collections.abc import Callable

import pytest

from batten.client.errors import NotStarted, WorkerClosed
from batten.client.sync.loop_thread import LoopThread
from tests.client.working import PATIENCE_S


class _BusyLoop(LoopThread):
    """Its thread is busy until two further steps were posted; after the first it may interrupt."""

    def __init__(self, *, interrupts: bool = False) -> None:
        super().__init__()
        self._free = threading.Event()
        self._posted = 0
        self._interrupts = interrupts
        super().post(lambda: self._free.wait(PATIENCE_S))

    def post(self, step: Callable[[], object]) -> None:
        super().post(step)
        self._posted += 1
        if self._posted == 2:
            self._free.set()
        elif self._posted == 1 and self._interrupts:
            signal.raise_signal(signal.SIGINT)


async def _work() -> str:
    return "done"


def test_an_interrupt_before_the_first_step_of_a_call_ends_it() -> None:
    """The loop sees the call and its cancel at once, so that the call's body never runs."""
    with _BusyLoop(interrupts=True) as loop:
        with pytest.raises(KeyboardInterrupt):
            loop.call(_work())
        assert loop.call(_work()) == "done"


def test_a_call_that_meets_the_closing_of_the_loop_is_answered() -> None:
    loop = _BusyLoop()
    told: list[str] = []

    def ask() -> None:
        try:
            told.append(loop.call(_work()))
        except WorkerClosed as error:
            told.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    with loop:
        pass
    asking.join(PATIENCE_S)
    assert told in (["done"], ["the worker was closed"])


def test_a_process_that_has_no_descriptor_left_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("asyncio.events.new_event_loop", exhausted)
    with pytest.raises(NotStarted, match="Too many open files"):
        LoopThread()
