"""`make setup` installs Debian's packages where it can, and goes on where it cannot."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "debian.sh"


@pytest.mark.parametrize(
    ("user", "working", "calls"),
    [
        (0, "install", ["install"]),
        (0, "update", ["install", "update", "install"]),
        (0, "", ["install", "update", *["install"] * 4]),
        (1000, "install", []),
    ],
)
def test_packages_are_installed_by_root_alone_and_nothing_fails(
    tmp_path: Path, user: int, working: str, calls: list[str]
) -> None:
    log = tmp_path / "log"
    apt = f"""
echo "$1" >> {log}
case "{working} $1" in
    "install install" | "update update") touch {tmp_path}/updated; exit 0 ;;
    "update install") test -e {tmp_path}/updated ;;
    *) exit 100 ;;
esac
"""
    for name, body in (("id", f"echo {user}"), ("apt-get", apt)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    for name in ("touch", "sh"):
        found = subprocess.check_output(["sh", "-c", f"command -v {name}"], text=True)
        (tmp_path / name).symlink_to(found.strip())
    done = subprocess.run(
        ["/bin/sh", str(SCRIPT)],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert (log.read_text().split() if log.exists() else []) == calls
    assert ("Landlock" in done.stderr) == (working == "" or user != 0)
