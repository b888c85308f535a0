"""Whether there are settings at all, seen from the folders."""

from pathlib import Path

import pytest

from batten.settings.folders import has_settings


@pytest.mark.parametrize("folder", ["config/batten", "work/.batten"])
def test_an_empty_folder_holds_no_settings(tmp_path: Path, folder: str) -> None:
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    workspace = tmp_path / "work"
    workspace.mkdir()
    assert not has_settings(str(workspace), environ)
    (tmp_path / folder).mkdir(parents=True)
    assert not has_settings(str(workspace), environ)
    (tmp_path / folder / "settings.toml").touch()
    assert has_settings(str(workspace), environ)


def test_a_folder_that_cannot_be_read_may_hold_settings(tmp_path: Path) -> None:
    (tmp_path / ".batten").write_text("a file in its place")
    assert has_settings(str(tmp_path), {"HOME": str(tmp_path)})
