import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agent.stage import Stage
from tests.claude.driving import OLDEST, Report, Sdk
from tests.models.server import ModelServer, Reply, answer
from tests.models.wire import anthropic_turn

Call = tuple[str, str, dict[str, Any]]


@pytest.fixture(scope="session", params=["newest", "0.1.6"])
def sdk(request: pytest.FixtureRequest) -> Iterator[Sdk]:
    python = OLDEST if request.param == "0.1.6" else Path(sys.executable)
    driven = Sdk(request.param, python)
    yield driven
    driven.close()


class Client:
    """A user of an SDK in a workspace, with a model that answers as it was told."""

    def __init__(self, sdk: Sdk, stage: Stage) -> None:
        self.sdk = sdk
        self.stage = stage

    @asynccontextmanager
    async def model(self, *replies: Reply) -> AsyncIterator[ModelServer]:
        async with ModelServer(replies) as server:
            self._server = server
            yield server

    async def run(self, **told: Any) -> Report:
        return await self.sdk.run(self.stage, self._server.environ(), **told)

    async def ask(self, *replies: Reply, **told: Any) -> Report:
        async with self.model(*replies):
            return await self.run(**told)


@pytest.fixture
def client(sdk: Sdk, tmp_path: Path) -> Client:
    return Client(sdk, Stage(tmp_path))


def says(text: str = "", *calls: Call, **usage: int) -> Reply:
    """One answer of the model."""
    return answer(anthropic_turn(text, calls, **usage))


def bash(command: str, call_id: str = "toolu_1") -> Call:
    return (call_id, "bash", {"command": command})


__all__ = ["AbstractAsyncContextManager", "Callable", "Client", "bash", "says"]
