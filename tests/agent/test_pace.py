"""A model that streams faster than the journal stores."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

from batten.agent.call import ModelCall
from batten.agent.deps import RunDeps
from batten.contract.conversation import Message, Text
from batten.journal.contract import Journal, Lease
from batten.journal.recorder import Recorder
from batten.models.contract import Model, ModelEvent, ModelRequest, TextDelta
from batten.models.retry import RetryPolicy
from batten.redact.redactor import Redactor


class Stalled:
    """A journal that takes facts and never has them stored."""

    def __init__(self) -> None:
        self.taken = 0
        self.busy = asyncio.Event()

    def append(self, *_: Any, **__: Any) -> asyncio.Future[Any]:
        self.taken += 1
        if self.taken == 256:
            self.busy.set()
        return asyncio.get_running_loop().create_future()


class Endless:
    provider, name, native_schema, context_tokens = "endless", "m", False, 1000

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        while True:
            yield TextDelta(0, "several words of text, ")
            await asyncio.sleep(0)


class RigOfOne:
    redactor = Redactor()


async def test_a_stalled_journal_holds_the_model_back() -> None:
    journal = Stalled()
    recorder = Recorder(
        cast(Journal, journal),
        Lease("run_1", 1, "w", ""),
        task_id=None,
        redactor=RigOfOne.redactor,
        seal_key=cast(Any, None),
        observe=lambda _, __: None,
    )
    model = cast(Model, Endless())
    call = ModelCall(
        cast(RunDeps, RigOfOne()),
        recorder,
        1,
        model,
        policy=RetryPolicy(),
        afford=lambda _: asyncio.sleep(0),
    )
    request = ModelRequest(model="m", messages=(Message("user", (Text("go"),)),))
    making = asyncio.ensure_future(call.make((model,), request))
    await journal.busy.wait()
    for _ in range(2000):
        await asyncio.sleep(0)
    held = journal.taken
    making.cancel()
    await asyncio.gather(making, return_exceptions=True)
    assert held == 256
