from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.service.serving import Service, serving


@pytest.fixture
def flags() -> tuple[str, ...]:
    """Flags of the service; without any, runs ask before they change something."""
    return ()


@pytest.fixture
async def service(tmp_path: Path, flags: tuple[str, ...]) -> AsyncIterator[Service]:
    async with serving(tmp_path, *flags) as running:
        yield running
