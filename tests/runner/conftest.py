from pathlib import Path

import pytest


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Its path is free of links."""
    directory = tmp_path.resolve() / "workspace"
    directory.mkdir()
    (directory / "notes.md").write_text("alpha\nbeta\ngamma\n")
    return directory
