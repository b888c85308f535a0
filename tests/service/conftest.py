from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.service.serving import Service, serving


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """A service whose runs ask before they execute commands or change files."""
    async with serving(tmp_path) as running:
        yield running
