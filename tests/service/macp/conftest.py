from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.service.macp.describing import Plane, planes


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    async with planes(tmp_path) as running:
        yield running
