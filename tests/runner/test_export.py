"""Which paths of a workspace may be kept."""

import os
from pathlib import Path

import pytest

from batten.contract.errors import CallerError, NotReady
from batten.runner.export import resolve
from batten.runner.export import workspace as opened

from .given import wire


def test_the_workspace_a_file_and_other_things_are_told_apart(workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    (workspace / "inner").symlink_to("notes.md")
    paths = (".", "notes.md", str(workspace / "notes.md"), "inner", "pipe")
    root = str(workspace)
    note = {"path": f"{root}/notes.md", "relative_path": "notes.md", "type": "file"}
    assert wire(resolve(paths, opened(root))) == {
        "mode": "local_path_contract",
        "paths": [
            {"input": ".", "path": root, "relative_path": ".", "type": "directory"},
            {"input": "notes.md", **note},
            {"input": f"{root}/notes.md", **note},
            {"input": "inner", **note},
            {"input": "pipe", "path": f"{root}/pipe", "relative_path": "pipe", "type": "other"},
        ],
    }


@pytest.mark.parametrize(
    "path",
    ["..", "../secret.txt", "/etc/passwd", "out", "out/secret.txt", "out/missing", "a/../.."],
)
def test_what_leads_outside_is_refused_whatever_is_there(
    path: str, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (workspace / "out").symlink_to(tmp_path)
    with pytest.raises(CallerError) as refused:
        resolve((".", path), opened(str(workspace)))
    assert str(refused.value) == f"Export path escapes hosted runner workspace root: {path}"
    assert refused.value.code == "export_path_escapes"


@pytest.mark.parametrize("path", ["missing", "notes.md/x", "loop", "dangling"])
def test_what_is_not_there_is_refused(path: str, workspace: Path) -> None:
    (workspace / "loop").symlink_to("loop")
    (workspace / "dangling").symlink_to("nothing")
    with pytest.raises(CallerError, match=f"Export path is unavailable: {path}"):
        resolve((path,), opened(str(workspace)))


def test_a_path_that_no_system_can_hold_is_refused(workspace: Path) -> None:
    with pytest.raises(CallerError, match="too long"):
        resolve(("x" * 300,), opened(str(workspace)))


@pytest.mark.parametrize("name", ["gone", "notes.md"])
def test_without_a_workspace_nothing_can_be_kept(name: str, workspace: Path) -> None:
    with pytest.raises(NotReady, match="workspace root is unavailable"):
        opened(str(workspace / name))
