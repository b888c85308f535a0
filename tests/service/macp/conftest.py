from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.service.macp.describing import DescribedPlane
from tests.service.macp.plane import Plane, planes


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Plane]:
    async with planes(tmp_path_factory.mktemp("plane")) as running:
        yield running


@pytest_asyncio.fixture
async def own_plane(tmp_path: Path) -> AsyncIterator[Plane]:
    async with planes(tmp_path) as running:
        yield running


@pytest.fixture
def plane(request: pytest.FixtureRequest, tmp_path: Path) -> Plane:
    """The control plane of all tests of a module; its own for a test marked `own_service`."""
    if request.node.get_closest_marker("own_service"):
        own: Plane = request.getfixturevalue("own_plane")
        return own
    shared: Plane = request.getfixturevalue("shared_plane")
    return Plane(shared.service.beside(tmp_path), shared.address)


@pytest.fixture
def described(plane: Plane) -> DescribedPlane:
    return DescribedPlane(plane.service, plane.address)
