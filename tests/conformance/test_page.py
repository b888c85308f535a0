"""The page on conformance shows the checks of the code."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_its_script_writes() -> None:
    script = ROOT / "scripts" / "generate_conformance_page.py"
    checked = subprocess.run([sys.executable, script, "--check"], check=False)
    assert checked.returncode == 0, f"run {script.name}"
