"""Private directories: each stays while it is claimed, whoever else comes and goes."""

import asyncio
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from batten.contract.errors import CallerError
from batten.workspace.private_directory import PrivateDirectory, scratch_directory


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def _come_and_go(times: int) -> None:
    for _ in range(times):
        directory = PrivateDirectory(os.environ["TMPDIR"])
        assert os.path.isdir(directory.path)
        asyncio.run(directory.remove())
        assert not os.path.exists(directory.path)


def test_those_who_sweep_never_take_what_is_being_made(base: Path) -> None:
    with ThreadPoolExecutor(8) as crowd:
        for done in [crowd.submit(_come_and_go, 60) for _ in range(8)]:
            done.result()
    assert list(base.iterdir()) == []


def test_what_a_killed_process_left_empty_is_swept_up(base: Path) -> None:
    left = base / "batten-0123456789abcdef"
    left.mkdir(mode=0o700)
    others = [base / "batten-trust-0123", base / "batten-escapes-01234567"]
    for other in others:
        other.mkdir(mode=0o700)
    asyncio.run(PrivateDirectory(os.environ["TMPDIR"]).remove())
    assert sorted(base.iterdir()) == sorted(others)


def test_scratch_of_a_killed_process_is_removed_whole_and_nothing_it_links_to(base: Path) -> None:
    kept = base / "kept"
    kept.mkdir()
    (kept / "object").touch()
    script = (
        "import os, sys\n"
        "from batten.workspace.private_directory import scratch_directory\n"
        "with scratch_directory(sys.argv[1]) as path:\n"
        "    os.symlink(sys.argv[2], f'{path}/objects')\n"
        "    open(f'{path}/config', 'w').close()\n"
        "    print(path, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        (sys.executable, "-c", script, str(base), str(kept)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holding:
        assert holding.stdout is not None
        left = Path(holding.stdout.readline().strip())
        asyncio.run(PrivateDirectory(str(base)).remove())
        assert (left / "config").exists()
        holding.kill()
        holding.wait(30)
    asyncio.run(PrivateDirectory(str(base)).remove())
    assert list(base.iterdir()) == [kept]
    assert (kept / "object").exists()


def test_scratch_is_removed_at_its_end(base: Path) -> None:
    with scratch_directory(str(base)) as path:
        Path(path, "config").touch()
    assert list(base.iterdir()) == []


def test_a_tmpdir_that_is_not_there_is_replaced_by_one_that_is(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(base / "never" / "made"))
    directory = PrivateDirectory(os.environ["TMPDIR"])
    assert os.path.dirname(directory.path) in map(os.path.realpath, ("/tmp", "/var/tmp"))
    asyncio.run(directory.remove())


def test_a_directory_that_cannot_be_made_is_a_typed_error(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As long as a path may be, and so too long for one more name in it.
    deep = str(base)
    while len(deep) < 4070:
        deep += "/" + "d" * min(200, 4089 - len(deep))
    monkeypatch.setenv("TMPDIR", deep)
    descriptor = os.open(base, os.O_RDONLY)
    for name in deep.removeprefix(f"{base}/").split("/"):
        os.mkdir(name, dir_fd=descriptor)
        below = os.open(name, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    with pytest.raises(CallerError, match="set TMPDIR") as refused:
        PrivateDirectory(os.environ["TMPDIR"])
    assert refused.value.code == "no_temporary_directory"


def test_what_is_claimed_is_not_swept_up() -> None:
    claimed = PrivateDirectory(os.environ["TMPDIR"])
    asyncio.run(PrivateDirectory(os.environ["TMPDIR"]).remove())
    assert os.path.isdir(claimed.path)
    asyncio.run(claimed.remove())
