"""Standard output that is a terminal: no text of a model reaches it as a command."""

import asyncio
import os
import pty
import select
import subprocess
from hashlib import sha256

import pytest

from batten.contract.marks import plain
from tests.agent.stage import Stage, bash, call, say
from tests.session.processes import BATTEN, batten, environment, running, until

ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b2K\u202e"


def on_terminal(stage: Stage, *argv: str, stream: int = 1) -> str:
    """What `batten` writes to a terminal as its standard output or error (`stream` 2); the
    terminal's own line ends are removed.
    """
    ours, its = pty.openpty()
    try:
        process = subprocess.Popen(
            [BATTEN, *argv], env=environment(stage), cwd=stage.workspace,
            stdin=subprocess.DEVNULL, stdout=its if stream == 1 else subprocess.PIPE,
            stderr=its if stream == 2 else subprocess.PIPE,
        )  # fmt: skip
        os.close(its)
        said = b""
        while select.select([ours], [], [], 30)[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break  # the process has ended
            if not piece:
                break
            said += piece
        process.communicate(timeout=30)
        return said.decode().replace("\r\n", "\n")
    finally:
        os.close(ours)


@pytest.mark.parametrize("form", ["text", "json", "stream-json", "events"])
def test_an_answer_is_shown_without_what_a_terminal_obeys(stage: Stage, form: str) -> None:
    model = stage.scenario([say(f"well {ESCAPE} done")])
    said = on_terminal(
        stage, "-p", "go", "--model", model, "--sandbox", "none", "--output-format", form,
        "--progress", "never",
    )  # fmt: skip
    assert "owned" in said
    assert plain(said) == said


def test_a_pipe_gets_the_answer_as_it_was_said(stage: Stage) -> None:
    model = stage.scenario([say(f"well {ESCAPE}")])
    said = batten(stage, "-p", "go", "--model", model, "--sandbox", "none")
    assert said.stdout.decode() == f"well {ESCAPE}\n"


def test_no_command_shows_what_a_terminal_obeys(stage: Stage) -> None:
    model = stage.scenario(
        [say(ESCAPE), call("write_file", path="a.txt", content=f"x {ESCAPE}\n")], [say("bye")]
    )
    flags = ("--sandbox", "none", "--permission-mode", "acceptEdits")
    batten(stage, "-p", f"go {ESCAPE}", "--model", model, *flags)
    journal = stage.journal()
    (run_id,) = [row.run_id for row in asyncio.run(journal.runs())]
    stored = asyncio.run(journal.artifacts(run_id))
    artifacts = [row.artifact_id for row in stored if row.kind == "patch"]
    journal.close()
    for argv in (
        ["events", run_id], ["diff", run_id], ["runs", "--json"], ["artifacts", run_id, "--json"],
        *(["artifacts", one] for one in artifacts),
    ):  # fmt: skip
        said = on_terminal(stage, *argv)
        assert said, argv
        assert plain(said) == said, argv


LONG = "echo harmless" + " " * 3000 + "; echo " + "x" * 20_000 + "; rm -rf /tmp/everything"


def test_an_operator_sees_all_of_a_command_or_a_marked_cut(stage: Stage) -> None:
    model = stage.scenario([bash("echo a" + " " * 700 + "\n\n\n; touch made")], [say("x")])
    with running(stage, "--model", model, "--ask-operator") as process:
        until(process, "approval.requested")
        (line,) = batten(stage, "requests").stdout.decode().splitlines()
        as_json = batten(stage, "requests", "--json").stdout.decode()
    assert line.endswith("; touch made")
    assert "blanks⟩" in line
    assert as_json.count("; touch made") == 2


def test_a_cut_of_a_long_command_is_marked_with_its_length_and_digest(stage: Stage) -> None:
    model = stage.scenario([bash(LONG)], [say("x")])
    with running(stage, "--model", model, "--ask-operator") as process:
        until(process, "approval.requested")
        listed = batten(stage, "requests").stdout.decode()
        as_json = batten(stage, "requests", "--json").stdout.decode()
    mark = f"… [cut here: {len(LONG)} characters, sha256 {sha256(LONG.encode()).hexdigest()}]"
    assert mark in listed
    assert mark in as_json
    assert "rm -rf /tmp/everything" in as_json  # the arguments are whole there


def test_an_operator_sees_every_argument_of_a_call(stage: Stage) -> None:
    write = call("write_file", path="a.sh", content="line 1\n" + "\n" * 50 + "rm -rf x\n")
    with running(stage, "--model", stage.scenario([write], [say("x")]), "--ask-operator") as run:
        until(run, "approval.requested")
        listed = batten(stage, "requests").stdout.decode().splitlines()
    assert "a.sh" in listed[0]
    assert any("content: line 1" in line and "rm -rf x" in line for line in listed[1:])


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_terminal_is_told_where_to_look_next(stage: Stage, form: str) -> None:
    flags = ("-p", "go", "--model", stage.scenario([say("well")]), "--output-format", form)
    shown = on_terminal(stage, *flags, stream=2)
    assert shown.splitlines()[-1] == f"Next: {BATTEN} show last, {BATTEN} diff last"
    assert shown.count("batten show") == 1
    stage.environ["PATH"] = f"{os.path.dirname(BATTEN)}:{stage.environ['PATH']}"
    shown = on_terminal(stage, *flags, stream=2)
    assert shown.splitlines()[-1] == "Next: batten show last, batten diff last"
    for others in (["--quiet"], ["--no-save"], ["--resume", "chat_nobody"]):
        assert "batten show" not in on_terminal(stage, *flags, *others, stream=2)
    assert batten(stage, *flags).stderr == b""
