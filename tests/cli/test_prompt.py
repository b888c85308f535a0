"""Where a prompt comes from, and what is wrong with one."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from batten.cli.prompt import LARGEST
from tests.agent.stage import Stage, say
from tests.session.processes import BATTEN, environment

from .invoking import Shell


@pytest.fixture
def model(stage: Stage) -> str:
    return stage.scenario([say("well")])


def prompted(shell: Shell) -> str:
    """The prompt of the newest run, as its journal has it."""
    events = shell("events", shell.run_ids()[-1]).frames()
    (message,) = [one["data"]["text"] for one in events if one["type"] == "user.message"]
    return str(message)


@pytest.mark.parametrize(
    ("argv", "stdin", "prompt"),
    [
        (["-p", "from print"], b"", "from print"),
        (["--print", "from print"], b"", "from print"),
        (["-p", "--prompt", "from prompt"], b"\n", "from prompt"),
        (["from", "words"], b"", "from words"),
        (["-p"], b"from stdin\n\n", "from stdin"),
        ([], b"from stdin", "from stdin"),
        (["-p", "-"], b"from stdin\r\n", "from stdin"),
        (["--prompt", "-"], b"from stdin", "from stdin"),
        (["-"], b"from stdin", "from stdin"),
        (["-p", ""], b"  from stdin", "  from stdin"),
        (["-p", "größe ☃"], b"", "größe ☃"),
        (["-p"], "größe ☃".encode(), "größe ☃"),
    ],
)
def test_a_prompt_is_taken_from_where_it_was_given(
    shell: Shell, model: str, argv: list[str], stdin: bytes, prompt: str
) -> None:
    said = shell("--model", model, *argv, stdin=stdin)
    assert (said.code, said.out) == (0, b"well\n")
    assert prompted(shell) == prompt


@pytest.mark.parametrize(
    ("argv", "stdin", "code", "words"),
    [
        (["-p"], b"", 64, "no prompt"),
        (["-p"], b" \n\t\n", 64, "no prompt"),
        (["-p", "   "], b"unread", 64, "no prompt"),
        (["-p", "one", "--prompt", "two"], b"", 64, "more than one prompt"),
        (["-p", "one", "two"], b"", 64, "more than one prompt"),
        (["-p"], b"\xff\xfe", 1, "not UTF-8"),
    ],
)
def test_a_prompt_that_is_none_is_said_to_be_none(
    shell: Shell, model: str, argv: list[str], stdin: bytes, code: int, words: str
) -> None:
    said = shell("--model", model, *argv, stdin=stdin)
    assert (said.code, said.out) == (code, b"")
    assert words in said.err
    assert shell.run_ids() == []


def test_standard_input_may_be_as_large_as_its_limit_and_not_a_byte_larger(
    shell: Shell, model: str
) -> None:
    assert LARGEST == 10 * 1024 * 1024
    assert shell("-p", "--model", model, stdin=b"x" * LARGEST).code == 0
    said = shell("-p", "--model", model, stdin=b"x" * (LARGEST + 1))
    assert (said.code, said.out) == (78, b"")
    assert str(LARGEST) in said.err


def test_a_large_prompt_reaches_the_model_whole(shell: Shell, model: str) -> None:
    shell("-p", "--model", model, stdin=b"x" * 300_000)
    (run_id,) = shell.run_ids()
    (artifact,) = shell("artifacts", run_id, "--json").frames()
    assert shell("artifacts", artifact["artifact_id"]).out == b"x" * 300_000


def test_words_that_are_not_utf8_are_a_usage_error(stage: Stage, model: str) -> None:
    argv = [BATTEN, "-p", os.fsdecode(b"\xff\xfe"), "--model", model]
    said = subprocess.run(argv, env=environment(stage), capture_output=True, check=False)
    assert said.returncode == 64
    assert b"not UTF-8" in said.stderr
    assert b"Traceback" not in said.stderr


def test_a_workspace_that_is_not_utf8_is_a_usage_error(stage: Stage, model: str) -> None:
    place = Path(os.fsdecode(os.fsencode(stage.directory) + b"/\xff"))
    place.mkdir()
    argv = [BATTEN, "-p", "go", "--model", model]
    said = subprocess.run(argv, env=environment(stage), cwd=place, capture_output=True, check=False)
    assert said.returncode == 64
    assert b"is not UTF-8" in said.stderr


def closed(number: int, stage: Stage, *argv: str) -> "subprocess.CompletedProcess[bytes]":
    """Run with one of the three standard descriptors closed."""
    words = " ".join(f"'{word}'" for word in argv)
    sign = "<" if number == 0 else ">"
    return subprocess.run(
        ["sh", "-c", f"exec '{BATTEN}' {words} {number}{sign}&-"],
        env=environment(stage),
        cwd=stage.workspace,
        capture_output=True,
        timeout=30,
        check=False,
    )


def test_a_closed_standard_input_is_a_prompt_that_is_missing(stage: Stage, model: str) -> None:
    said = closed(0, stage, "-p", "--model", model)
    assert said.returncode == 64
    assert b"standard input cannot be read" in said.stderr
    assert closed(0, stage, "-p", "go", "--model", model).returncode == 0


def test_a_closed_standard_output_is_no_place_for_the_journal(stage: Stage, model: str) -> None:
    said = closed(1, stage, "-p", "go", "--model", model, "--output-format", "stream-json")
    assert said.returncode != 0
    assert b"Traceback" not in said.stderr
    journal = stage.journal()
    assert asyncio.run(journal.verify()) == []
    journal.close()


def test_a_closed_standard_error_changes_nothing(stage: Stage, model: str) -> None:
    said = closed(2, stage, "-p", "go", "--model", model, "--progress", "always")
    assert (said.returncode, said.stdout) == (0, b"well\n")
    wrong = closed(2, stage, "-p", "go", "--model", "nobody/nothing")
    assert (wrong.returncode, wrong.stdout) == (78, b"")
