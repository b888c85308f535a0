from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.serve.http.wire import Toy, toy


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Toy]:
    async with toy(tmp_path) as running:
        yield running
