"""What is installed: the wheel has all that a run needs, and the pins are those of the project."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from tests.docs.pages import ROOT


def pins(*files: str) -> set[str]:
    """The names of the packages that these files pin."""
    lines = [line for file in files for line in (ROOT / file).read_text().splitlines()]
    return {re.split(r"[\[=]", line)[0] for line in lines if line and not line.startswith("#")}


def test_every_dependency_of_the_project_is_pinned_and_nothing_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[\[<>=!~ ]", one)[0] for one in project["dependencies"]}
    assert pins("requirements.txt", "requirements-mcp.txt") == needed
    extra = {re.split(r"[<>=]", one)[0] for one in project["optional-dependencies"]["runtime"]}
    assert pins("requirements-runtime.txt") == extra


def test_the_demo_installs_nothing_that_developers_need() -> None:
    script = (ROOT / "demo" / "install.sh").read_text()
    assert set(re.findall(r"requirements[\w-]*\.txt", script)) == {"requirements.txt"}
    others = pins("requirements-dev.txt", "requirements-mcp.txt", "requirements-runtime.txt")
    assert not pins("requirements.txt") & others


def test_the_wheel_holds_the_program_whole(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.startswith("batten/")}
    written = {
        f"batten/{file.relative_to(ROOT / 'src' / 'batten')}"
        for file in (ROOT / "src" / "batten").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert held == written
    asked = subprocess.run(
        [sys.executable, "-c", "import batten; print(batten.__file__)"],
        env={**os.environ, "PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert asked.stdout.startswith(str(wheel))
