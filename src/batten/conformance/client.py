"""A client of one process of the program under test, and the checks that begin with one."""

from collections.abc import Awaitable, Callable
from typing import Self, Unpack

from batten.conformance.bench import Bench
from batten.conformance.check import Check, Options, check
from batten.conformance.subject import Subject


class Client:
    """Each protocol has its own: it greets the process in `ready`."""

    def __init__(self, bench: Bench, subject: Subject) -> None:
        self.bench = bench
        self.subject = subject

    @classmethod
    async def start(cls, bench: Bench) -> Self:
        """A client that has said nothing yet."""
        return cls(bench, await bench.start())

    @classmethod
    async def ready(cls, bench: Bench) -> Self:
        """A client that has greeted the process."""
        raise NotImplementedError

    @classmethod
    def check(
        cls, check_id: str, section: str, *, greets: bool = True, **options: Unpack[Options]
    ) -> Callable[[Callable[[Self], Awaitable[None]]], Check]:
        """Makes a check of a function of a client; `greets`: one that is `ready`."""
        begin = cls.ready if greets else cls.start

        def decorate(run: Callable[[Self], Awaitable[None]]) -> Check:
            async def begun(bench: Bench) -> None:
                await run(await begin(bench))

            begun.__doc__ = run.__doc__
            return check(check_id, section, **options)(begun)

        return decorate
