import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.stage import Stage
from tests.claude.driving import OLDEST, Client, Sdk


@pytest.fixture(scope="session", params=["newest", "0.1.6"])
def sdk(request: pytest.FixtureRequest) -> Iterator[Sdk]:
    python = OLDEST if request.param == "0.1.6" else Path(sys.executable)
    driven = Sdk(request.param, python)
    yield driven
    driven.close()


@pytest.fixture
def client(sdk: Sdk, tmp_path: Path) -> Client:
    return Client(sdk, Stage(tmp_path))
