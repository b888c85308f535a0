"""Leaving: in time, with the last frame, whatever is still waited for."""

import os
import resource
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

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


@pytest.mark.parametrize("form", ["stream-json", "events"])
def test_a_reader_that_leaves_ends_the_run_while_nothing_is_written(
    stage: Stage, form: str
) -> None:
    os.mkfifo(stage.workspace / "started")
    model = stage.scenario([bash("echo x > started; exec tail -f /dev/null")])
    flags = ("--model", model, "--allow", "bash", "--output-format", form)
    with started(stage, *flags) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        (stage.workspace / "started").read_text()
        process.stdout.close()
        assert process.wait(30) == 124
        assert b"batten: cancelled: output closed" in process.stderr.read()


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


def test_a_session_that_is_not_saved_is_kept_in_no_file(stage: Stage) -> None:
    scratch = stage.directory / "scratch"
    scratch.mkdir()
    env = {"TMPDIR": str(scratch)}
    model = stage.scenario([bash("echo $$ > started; exec tail -f /dev/null")], [say("well")])
    os.mkfifo(stage.workspace / "started")
    flags = ("--model", model, "--no-save", "--allow", "bash")
    with started(stage, *flags, env=env) as process:
        (stage.workspace / "started").read_text()
        assert not kept(stage.directory)
        process.kill()
    done = stage.scenario([say("well")], name="done")
    with started(stage, "--model", done, "--no-save", env=env) as process:
        out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, b"well\n")
    assert not kept(stage.directory)


def kept(directory: Path) -> list[Path]:
    """The files of journals anywhere below a directory."""
    return [path for path in directory.rglob("*") if "journal" in path.name]


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
