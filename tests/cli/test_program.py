"""The name under which the program tells people to call it again."""

import sys
from pathlib import Path

import pytest

from batten.cli.program import program_name


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program named `batten`, in a folder with a space in its name."""
    program = tmp_path / "a folder" / "batten"
    program.parent.mkdir()
    program.touch(0o755)
    return program


def called(monkeypatch: pytest.MonkeyPatch, name: object, path: Path) -> str:
    monkeypatch.setattr(sys, "argv", [str(name), "-p", "go"])
    monkeypatch.setenv("PATH", str(path))
    return program_name()


def test_a_program_that_the_shell_finds_needs_no_path(
    monkeypatch: pytest.MonkeyPatch, program: Path
) -> None:
    assert called(monkeypatch, program, program.parent) == "batten"


def test_a_program_beside_the_one_that_the_shell_finds_is_named_by_its_path(
    monkeypatch: pytest.MonkeyPatch, program: Path, tmp_path: Path
) -> None:
    (tmp_path / "batten").touch(0o755)
    assert called(monkeypatch, program, tmp_path) == f"'{program}'"


def test_a_module_is_named_with_its_interpreter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = called(monkeypatch, tmp_path / "batten" / "__main__.py", tmp_path)
    assert name == f"{sys.executable} -m batten"


def test_a_call_that_no_file_stands_for_is_named_batten(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert called(monkeypatch, "-c", tmp_path) == "batten"
