"""`batten` as processes of its own, for what only a process can show: being killed, and others."""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tests.agent.stage import Stage

BATTEN = str(Path(sys.executable).with_name("batten"))
PATIENCE_S = 30.0


def environment(stage: Stage) -> dict[str, str]:
    return {**stage.environ, "BATTEN_HOME": str(stage.home), "LANG": "C.UTF-8"}


def batten(stage: Stage, *argv: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """Run to the end."""
    return subprocess.run(
        [BATTEN, *argv],
        input=stdin,
        capture_output=True,
        env=environment(stage),
        cwd=stage.workspace,
        timeout=PATIENCE_S,
        check=False,
    )


@contextmanager
def running(stage: Stage, *argv: str) -> "Generator[subprocess.Popen[bytes], None, None]":
    """A process that prints events; killed at the end of the block if it still runs."""
    with subprocess.Popen(
        [BATTEN, "-p", "go", "--sandbox", "none", "--output-format", "events", *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(stage),
        cwd=stage.workspace,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(process: "subprocess.Popen[bytes]", event_type: str) -> str:
    """Read events until one of this type; the id of its run."""
    assert process.stdout is not None
    for line in process.stdout:
        envelope = msgspec.json.decode(line)
        if envelope["type"] == event_type:
            return str(envelope["run_id"])
    stderr = process.stderr.read() if process.stderr else b""
    raise AssertionError(f"no {event_type}: {stderr.decode()}")


def kill_after(stage: Stage, event_type: str, *argv: str) -> str:
    """Start a run and kill its process with -9 once an event of this type was printed."""
    with running(stage, *argv) as process:
        run_id = until(process, event_type)
        os.kill(process.pid, 9)
        process.wait(PATIENCE_S)
    return run_id
