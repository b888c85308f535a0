from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.service.macp.describing import DescribedPlane, described_planes
from tests.service.macp.plane import Plane, planes


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    async with planes(tmp_path) as running:
        yield running


@pytest.fixture
async def described(tmp_path: Path) -> AsyncIterator[DescribedPlane]:
    async with described_planes(tmp_path) as running:
        yield running
