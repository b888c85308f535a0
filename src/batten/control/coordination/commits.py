"""Group commit: facts of many sessions gather for a moment and share one commit.

A commit costs the processor as much as taking several messages, however many it holds. On a fast
disk each message would have one of its own, since it ends before the next message is there.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Any

from batten.contract.errors import BattenError
from batten.journal.receipt import Receipt, Receipts

LONGEST_S = 0.01
"""How long an append waits for others."""
PAUSE_S = 0.001
"""It waits no longer once no other came for this time."""
_RECENT_S = 0.05
"""A sender heard within this time will probably be heard again at once."""
_MOST = 100
"""Appends of one commit."""


class Append:
    """Facts on their way to the journal. Awaiting it waits until they are durable, and raises the
    journal's error.
    """

    __slots__ = ("_error", "_is_settled", "_on_settled", "_waiters", "submit")

    def __init__(
        self,
        submit: Callable[[], Receipt[Any]],
        on_settled: Callable[[BaseException | None], object] = lambda error: None,
    ) -> None:
        """`submit` gives the facts to the journal. `on_settled` is called with the outcome, whether
        somebody waits for it or not.
        """
        self.submit = submit
        self._on_settled = on_settled
        self._is_settled = False
        self._error: BaseException | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def __await__(self) -> Generator[Any, None, None]:
        if self._is_settled:
            yield  # give other tasks a turn, as if we had waited
        else:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            yield from waiter
        if self._error is not None:
            raise self._error

    def settle(self, error: BaseException | None) -> None:
        """Tell everybody who waits."""
        self._is_settled = True
        self._error = error
        self._on_settled(error)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class Commits:
    """Appends to a journal in the order of `add`, many in one commit. One sender alone never waits
    for others.
    """

    def __init__(
        self,
        *,
        here: bool = False,
        longest_s: float = LONGEST_S,
        pause_s: float = PAUSE_S,
    ) -> None:
        """`here`: a commit may block the event loop while the disk is fast, which saves the switch
        to the journal's thread and back.
        """
        self._here = here
        self._longest_s = longest_s
        self._pause_s = pause_s
        self._heard: OrderedDict[str, float] = OrderedDict()
        """When each sender was last heard, the oldest first."""
        self._queue: list[Append] = []
        self._timer: asyncio.TimerHandle | None = None
        self._first_at = self._last_at = 0.0
        self._under_way: list[list[Append]] = []

    def add(self, append: Append, sender: str = "") -> Append:
        """Queue an append. With a sender it waits until the others who were heard a moment ago are
        heard again, for a moment at most; all earlier ones go with it.
        """
        self._queue.append(append)
        if not sender or len(self._queue) >= _MOST:
            self._commit()
            return append
        loop = asyncio.get_running_loop()
        now = self._last_at = loop.time()
        heard = self._heard
        heard[sender] = now
        heard.move_to_end(sender)
        while next(iter(heard.values())) < now - _RECENT_S:
            heard.popitem(last=False)
        if len(self._queue) >= len(heard):
            self._commit()
        elif self._timer is None:
            self._first_at = now
            self._timer = loop.call_at(now + min(self._pause_s, self._longest_s), self._look)
        return append

    async def finish(self) -> None:
        """Wait until everything that was added is durable, or has failed."""
        if self._queue:
            self._commit()
        for one in [append for group in self._under_way for append in group]:
            with suppress(BattenError):
                await one

    def _look(self) -> None:
        """Commit if no append came for a while, or the first has waited for long enough."""
        loop = asyncio.get_running_loop()
        until = min(self._last_at + self._pause_s, self._first_at + self._longest_s)
        if loop.time() >= until:
            self._commit()
        else:
            self._timer = loop.call_at(until, self._look)

    def _commit(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        group, self._queue = self._queue, []
        try:
            receipts = Receipts([one.submit() for one in group])
        except BattenError as error:  # the journal is closed
            for one in group:
                one.settle(error)
            return
        if self._here:
            receipts.write_here()
        self._under_way.append(group)
        receipts.when_filled(partial(self._settle, group))

    def _settle(self, group: list[Append], errors: list[BaseException | None]) -> None:
        self._under_way.remove(group)
        for one, error in zip(group, errors, strict=True):
            one.settle(error)
