"""The demo repairs its repository, and what it suggests works as printed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.invoking import KEYS
from tests.docs.pages import ROOT

VENV = Path(sys.executable).parent.parent
ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith(KEYS)}


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """A folder of the demo in which everything is installed."""
    (tmp_path / "venv").symlink_to(VENV)
    (tmp_path / "installed").touch()
    return tmp_path


def shell(command: str, **environ: str) -> str:
    """What a command prints in the project, after it has succeeded."""
    ended = subprocess.run(
        ["sh", "-c", command],
        cwd=ROOT,
        env={**ENVIRON, **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, f"{command}:\n{ended.stdout}"
    return ended.stdout


def test_what_the_demo_suggests_works_as_printed_and_the_next_demo_begins_anew(demo: Path) -> None:
    told = shell("make demo", DEMO=str(demo))
    assert "All three tests pass." in told
    assert '+UNITS = (("day", 86400), ("hour", 3600)' in told
    suggested = [line for line in told.splitlines() if line.startswith(f"{demo}/batten ")]
    assert [line.split()[1] for line in suggested] == [
        *("show", "events", "verify", "revert"),
        "serve",  # stays, so it is not run here
    ]
    printed = [shell(command) for command in suggested[:-1]]
    assert "The tests fail. Find the bug and fix it." in printed[0]
    assert '"type":"run.finished"' in printed[1]
    original = ROOT / "demo" / "repository" / "clockwork" / "spoken.py"
    assert (demo / "repository" / "clockwork" / "spoken.py").read_text() == original.read_text()
    assert "All three tests pass." in shell("make demo", DEMO=str(demo))
    assert shell(f"{demo}/batten runs --json").count('"run_id"') == 2


def test_the_demo_follows_a_run_in_the_service(demo: Path) -> None:
    told = shell("make demo", DEMO=str(demo)).splitlines()
    begins = next(place for place, line in enumerate(told) if line.endswith("serve &"))
    assert told[begins + 1].startswith("listening on http://127.0.0.1:")
    events = [line.split() for line in told[begins:] if line[:1].isdigit()]
    assert events[0] == ["0", "run.queued"]
    assert events[-1][1] == "run.finished"


def test_git_ignores_what_the_demo_leaves() -> None:
    assert ".demo/" in (ROOT / ".gitignore").read_text().splitlines()
    assert "DEMO ?= .demo\n" in (ROOT / "Makefile").read_text()
