"""A fresh stage for each campaign."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaigns.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path / "stage") as stage:
        yield stage
