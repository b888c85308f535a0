"""A fresh stage for each campaign. They look into /proc, so they run where there is one."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaigns.stage import Stage

collect_ignore_glob = [] if sys.platform == "linux" else ["test_*.py"]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path / "stage") as stage:
        yield stage
