from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control.given import Place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.opener.close()
