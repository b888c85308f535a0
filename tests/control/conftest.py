from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.agent.stage import Stage

from .service import Service, serving


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
async def service(stage: Stage) -> AsyncGenerator[Service, None]:
    """Everything that no rule decides is allowed."""
    async with serving(stage, "--auto-allow") as running:
        yield running
