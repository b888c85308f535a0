from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.ports import free_port
from tests.service.serving import Service, serving


@pytest.fixture(scope="module")
def flags() -> tuple[str, ...]:
    """Flags of the service; without any, runs ask before they change something."""
    return ()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    tmp_path_factory: pytest.TempPathFactory, flags: tuple[str, ...]
) -> AsyncIterator[Service]:
    async with serving(tmp_path_factory.mktemp("service"), *flags) as running:
        yield running


@pytest_asyncio.fixture
async def own(tmp_path: Path, flags: tuple[str, ...]) -> AsyncIterator[Service]:
    # With a port to which it can come back.
    async with serving(tmp_path, "--no-runtime", "--port", str(free_port()), *flags) as running:
        yield running


@pytest.fixture
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Service:
    """The service of all tests of a module, with a workspace for this one; a service of its own
    for a test marked `own_service`.
    """
    if request.node.get_closest_marker("own_service"):
        own: Service = request.getfixturevalue("own")
        return own
    shared: Service = request.getfixturevalue("shared")
    return shared.beside(tmp_path)
