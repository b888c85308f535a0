"""`batten diff` for people: in colour, through their pager, and exact on a pipe."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.agent.stage import Stage, call, say
from tests.session.processes import BATTEN, batten, environment

from .watching import watch, watching

DIFF = (
    "diff --git a/a.txt b/a.txt\nnew file mode 100644\n--- /dev/null\n+++ b/a.txt\n"
    "@@ -0,0 +1,2 @@\n+one\n+two\n"
)


@pytest.fixture
def run_id(stage: Stage) -> str:
    model = stage.scenario([call("write_file", path="a.txt", content="one\ntwo\n")], [say("x")])
    flags = ("--sandbox", "none", "--permission-mode", "acceptEdits")
    batten(stage, "-p", "go", "--model", model, *flags)
    return "last"


def pager(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_diff_on_a_pipe_is_exact(stage: Stage, run_id: str) -> None:
    assert batten(stage, "diff", run_id).stdout.decode() == DIFF
    assert b"\x1b[32m+one\x1b[0m" in batten(stage, "diff", run_id, "--color", "always").stdout


def test_a_diff_on_a_terminal_goes_through_the_pager_in_colour(
    stage: Stage, run_id: str, tmp_path: Path
) -> None:
    command = pager(tmp_path / "pager", 'echo "paged with $1"; cat; echo "end of pager"')
    watched = watch(stage, "diff", run_id, PAGER=f"{command} --flag")
    lines = ["paged with --flag", *DIFF.splitlines(), "end of pager"]
    assert watched.text.split("\n") == lines
    assert watched.process.returncode == 0
    assert watched.color("+one") == "green"


def test_the_pager_of_batten_goes_before_the_usual_one(
    stage: Stage, run_id: str, tmp_path: Path
) -> None:
    command = pager(tmp_path / "pager", "echo ours; cat >/dev/null")
    watched = watch(stage, "diff", run_id, PAGER="false", BATTEN_PAGER=command)
    assert watched.text == "ours"


@pytest.mark.skipif(shutil.which("less") is None, reason="there is no less here")
def test_without_a_choice_the_pager_is_less(stage: Stage, run_id: str) -> None:
    watched = watch(stage, "diff", run_id)
    assert watched.color("+two") == "green"
    assert watched.text.split("\n")[: len(DIFF.splitlines())] == DIFF.splitlines()


@pytest.mark.parametrize(
    ("flags", "environ"),
    [
        (["--no-pager"], {}), ([], {"PAGER": ""}), ([], {"PAGER": "cat"}),
        ([], {"PAGER": "/nowhere/at/all"}), ([], {"TERM": "dumb"}),
    ],
)  # fmt: skip
def test_without_a_pager_the_diff_goes_to_the_terminal(
    stage: Stage, run_id: str, tmp_path: Path, flags: list[str], environ: dict[str, str]
) -> None:
    trap = pager(tmp_path / "pager", "echo paged")
    with watching(stage, "diff", run_id, *flags, environ={"PAGER": trap, **environ}) as watched:
        watched.end()
    assert watched.text.split("\n") == DIFF.splitlines()


def test_a_pager_that_quits_early_is_no_error(stage: Stage, tmp_path: Path) -> None:
    content = "a line of a file that is far larger than any pipe\n" * 20_000
    model = stage.scenario([call("write_file", path="a.txt", content=content)], [say("x")])
    flags = ("--sandbox", "none", "--permission-mode", "acceptEdits")
    batten(stage, "-p", "go", "--model", model, *flags)
    run_id = "last"
    command = pager(tmp_path / "pager", "head -c 4")
    watched = watch(stage, "diff", run_id, "--color", "never", PAGER=command)
    assert (watched.process.returncode, watched.text) == (0, "diff")


def test_ctrl_c_belongs_to_the_pager(stage: Stage, run_id: str, tmp_path: Path) -> None:
    command = pager(
        tmp_path / "pager", "trap 'echo interrupted; exit 0' INT; echo ready; cat >/dev/null; "
        "while :; do sleep 0.05; done",
    )  # fmt: skip
    with watching(stage, "diff", run_id, environ={"PAGER": command}) as watched:
        watched.until(lambda one: "ready" in one.text)
        watched.press(b"\x03")
        assert watched.end() == 0
    assert "interrupted" in watched.text


def test_a_closed_pipe_is_still_an_error(stage: Stage, run_id: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    said = subprocess.run(
        [BATTEN, "diff", run_id], env=environment(stage), stdout=writing, stderr=subprocess.PIPE,
        check=False,
    )  # fmt: skip
    os.close(writing)
    assert said.returncode == 1
    assert b"Traceback" not in said.stderr
