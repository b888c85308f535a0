import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.stage import Stage
from tests.claude.driving import OLDEST, Client, Sdk


@pytest.fixture(scope="package", params=["newest", "0.1.6"])
def sdk(request: pytest.FixtureRequest) -> Iterator[Sdk]:
    python = OLDEST if request.param == "0.1.6" else Path(sys.executable)
    driven = Sdk(request.param, python)
    yield driven
    driven.close()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
def client(sdk: Sdk, stage: Stage) -> Client:
    return Client(sdk, stage)
