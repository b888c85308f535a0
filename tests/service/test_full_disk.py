"""A service whose disk is full: it says so without its paths, loses nothing, and goes on after."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.stage import bash, say
from tests.service.serving import serving


@pytest.fixture
def small_home(tmp_path: Path) -> Iterator[Path]:
    """A directory whose `home` is on a file system of its own."""
    home = tmp_path / "home"
    home.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m,mode=700", "tmpfs", str(home)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system is not allowed here")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "--lazy", str(home)], check=True)


def _fill(path: Path) -> None:
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            return


async def test_a_full_disk_is_told_without_paths_and_the_service_goes_on_after(
    small_home: Path,
) -> None:
    async with serving(small_home, "--auto-allow") as service:
        home = service.stage.home
        assert home == small_home / "home"
        model = service.stage.scenario([say("done")])
        waiting = "until test -e full; do sleep 0.02; done; seq 20000"
        run = await service.started(service.stage.scenario([bash(waiting)], [say("done")]))
        await run.until("tool.shell.command")
        task = await service.task(model)
        _fill(home / "fill")
        for path, body in (
            ("/tasks", {"prompt": "x" * 50_000, "requested_model": model}),
            (f"/tasks/{task}/start", {}),
        ):
            answer = await service.ask("POST", path, body)
            assert (answer.status, answer.error["code"]) == (503, "store_full")
            assert str(home).encode() not in answer.body
        (service.stage.workspace / "full").touch()
        ended = await run.ended()
        assert ended["status"] == "failed"
        assert ended["last_error"].startswith("the disk of the store is full; the log")
        assert str(home) not in str(await run.events())
        (home / "fill").unlink()
        again = await service.post(f"/tasks/{task}/start")
        assert again["status"] == "queued"
        assert (await (await service.started(model)).ended())["status"] == "completed"
    log = (small_home / "serve.err").read_text()
    assert f"no room left for the journal in {home}" in log
