"""Leaving: in time, with the last frame, whatever is still waited for."""

import os
import resource
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tests.agent.stage import Stage, bash, say
from tests.session.processes import BATTEN, environment

from .invoking import Shell

STREAMED = ("--output-format", "stream-json")


def started(
    stage: Stage,
    *argv: str,
    env: dict[str, str] | None = None,
    first: Callable[[], None] | None = None,
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [BATTEN, "-p", "go", "--sandbox", "none", *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**environment(stage), **(env or {})},
        cwd=stage.workspace,
        preexec_fn=first,
    )


def last_frame(out: bytes) -> dict[str, Any]:
    last: dict[str, Any] = msgspec.json.decode(out.splitlines()[-1])
    return last


def test_a_signal_while_hooks_hear_of_the_end_leaves_the_ending_as_it_was(stage: Stage) -> None:
    hanging = {"type": "command", "command": "echo x > heard; exec tail -f /dev/null"}
    hooks = {"SessionEnd": [{"handlers": [hanging, hanging, hanging]}]}
    os.mkfifo(stage.workspace / "heard")
    model = stage.scenario([say("well")])
    settings = msgspec.json.encode({"hooks": hooks}).decode()
    with started(stage, "--model", model, "--settings", settings, *STREAMED) as process:
        (stage.workspace / "heard").read_text()
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert last_frame(out)["subtype"] == "success"


def test_what_the_machine_refuses_is_said_in_a_frame_and_without_a_trace(stage: Stage) -> None:
    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))

    model = stage.scenario([say("well")])
    with started(stage, "--model", model, *STREAMED, first=few_files) as process:
        out, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert last_frame(out)["subtype"] == "error"
    assert b"Traceback" not in err


def test_servers_that_are_not_named_are_a_usage_error(shell: Shell) -> None:
    said = shell.play([say("x")], flags=["--mcp-config", '{"mcpServers": "x"}'])
    assert said.code == 64
    assert '{"mcpServers": {name: {...}}}' in said.err


def test_what_is_not_saved_leaves_no_file_behind_also_when_the_process_is_killed(
    stage: Stage,
) -> None:
    scratch = stage.directory / "scratch"
    scratch.mkdir()
    env = {"TMPDIR": str(scratch)}
    long = say("word " * 1_200_000)  # more than is kept in memory
    model = stage.scenario([long, bash("echo $$ > started; exec tail -f /dev/null")], [say("well")])
    os.mkfifo(stage.workspace / "started")
    flags = ("--model", model, "--no-save", "--allow", "bash")
    with started(stage, *flags, env=env) as process:
        (stage.workspace / "started").read_text()
        assert unsaved(stage, scratch) == []
        process.kill()
    assert unsaved(stage, scratch) == []
    done = stage.scenario([say("well")], name="done")
    with started(stage, "--model", done, "--no-save", env=env) as process:
        out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, b"well\n")
    assert unsaved(stage, scratch) == []


def unsaved(stage: Stage, scratch: Path) -> list[Path]:
    """Files of a journal, and whatever lies where temporary files do."""
    found = [path for path in scratch.rglob("*") if path.is_file()]
    return [*found, *stage.home.rglob("journal.db*")]


def test_a_prompt_that_is_shown_again_has_no_secrets(stage: Stage) -> None:
    model = stage.scenario([say("well")])
    argv = ["--model", model, "--replay-user-messages", "--input-format", "stream-json", *STREAMED]
    key = "sk-ant-api03-" + "Zx9" * 30
    line = msgspec.json.encode({"type": "user", "content": f"use {key}"}) + b"\n"
    done = subprocess.run(
        [BATTEN, *argv], input=line, capture_output=True, env=environment(stage), timeout=30
    )
    assert done.returncode == 0
    assert key.encode() not in done.stdout
    assert b'"type":"user"' in done.stdout
