from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from tests.agent.stage import Stage
from tests.control.given import Place
from tests.control.service import Service, serving


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.opener.close()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
async def service(stage: Stage) -> AsyncGenerator[Service, None]:
    """Everything that no rule decides is allowed."""
    async with serving(stage, "--auto-allow") as running:
        yield running
