from pathlib import Path

import pytest

from tests.agent.stage import Stage
from tests.cli.invoking import Shell


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
def shell(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(stage, monkeypatch)
