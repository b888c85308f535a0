"""A flood of output and a reader of four kilobytes a second: bounded, whole, and not held up."""

import hashlib
import subprocess
import time
from pathlib import Path

import pytest

from tests.campaigns.stage import BATTEN, Json, Playing, Stage, bash, say, terminal

MEGABYTE = 1 << 20
MOST_MEMORY = 150 * MEGABYTE
SIP = 4096
LINE = b"a line of output that is neither short nor secret, and there are many of it\n"


def _peak(pid: int) -> int:
    """The most memory a process ever held, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not say")


def _flood(stage: Stage, size: int) -> Playing:
    """One command with `size` bytes of output, then some that fill the reader's pipe and ours."""
    flood = f"yes '{LINE.decode().rstrip()}' | head -c {size}; exit 3"
    more = [[bash(f"seq {n} 60000")] for n in range(12)]
    model = stage.scenario([bash(flood, timeout=3600)], *more, [say("That was a lot.")])
    return stage.prompt(model)


def _ended(stage: Stage) -> Json | None:
    """The run, once its terminal fact is stored."""
    if not (stage.home / "journal.db").exists():
        return None
    runs = stage.runs()
    return runs[0] if runs and runs[0]["outcome"] is not None else None


def _sip_until_ended(stage: Stage, playing: Playing) -> Json:
    """Read four kilobytes a second until the journal has the ending."""
    while (run := _ended(stage)) is None:
        playing.sip(SIP)
        time.sleep(1)
    return run


def _digest(lines: int, rest: int) -> str:
    whole = hashlib.sha256()
    block = LINE * 1000
    for _ in range(lines // 1000):
        whole.update(block)
    whole.update(LINE * (lines % 1000) + LINE[:rest])
    return whole.hexdigest()


def _assert_whole(stage: Stage, run_id: str, size: int) -> None:
    """The artifact has every byte, and the command's own exit code."""
    artifacts = stage.batten("artifacts", run_id, "--json").frames()
    kept = artifacts[0]
    assert (kept["kind"], kept["size_bytes"]) == ("command_output", size)
    assert (kept["metadata"]["exit_code"], kept["metadata"]["stdout_bytes"]) == (3, size)
    with subprocess.Popen(
        [BATTEN, "artifacts", kept["artifact_id"]], stdout=subprocess.PIPE, env=stage.environ
    ) as printing:
        assert printing.stdout is not None
        whole = hashlib.sha256()
        while piece := printing.stdout.read(MEGABYTE):
            whole.update(piece)
    assert whole.hexdigest() == _digest(*divmod(size, len(LINE))) == kept["sha256"]


def _campaign(stage: Stage, size: int, *, patient_s: int = 0) -> None:
    playing = _flood(stage, size)
    run = _sip_until_ended(stage, playing)
    for _ in range(patient_s):
        playing.sip(SIP)
        time.sleep(1)
    assert playing.running, "it waits for its reader"
    assert _peak(playing.pid) < MOST_MEMORY
    ended = playing.end()
    assert ended.code == 0, ended.err
    assert terminal(ended.frames())["type"] == "run.finished"
    assert ended.lines() == stage.stored(run["run_id"])
    assert len(ended.out) > 2 * MEGABYTE
    _assert_whole(stage, run["run_id"], size)
    stage.verify()


def test_a_flood_and_a_slow_reader_hold_nothing_up_and_lose_nothing(stage: Stage) -> None:
    _campaign(stage, 64 * MEGABYTE)


@pytest.mark.soak
def test_a_gigabyte_and_a_slow_reader_hold_nothing_up_and_lose_nothing(stage: Stage) -> None:
    # Longer than a reader that stands still is waited for: this one does not.
    _campaign(stage, 1024 * MEGABYTE, patient_s=40)


def test_a_process_that_only_waits_for_its_reader_can_be_interrupted(stage: Stage) -> None:
    playing = _flood(stage, MEGABYTE)
    _sip_until_ended(stage, playing)
    playing.interrupt()
    assert playing.wait() == 0


@pytest.mark.soak
def test_a_reader_that_stands_still_does_not_keep_the_process(stage: Stage) -> None:
    """It is given up on, and the exit code says so; what it missed is in the journal."""
    playing = _flood(stage, MEGABYTE)
    playing.sip(SIP)
    code = playing.wait()
    (run,) = stage.runs()
    assert (code, run["outcome"]) == (1, "completed")
    stage.verify()
