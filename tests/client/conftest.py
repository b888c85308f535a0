from pathlib import Path

import pytest

from batten.client import Launch, own_process
from batten.embedded import in_process
from tests.agent.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture(params=[own_process, in_process], ids=["process", "in_process"])
def launch(request: pytest.FixtureRequest) -> Launch:
    """Both places where a worker can run: what holds for one holds for the other."""
    place: Launch = request.param
    return place
