"""Mistyped commands and flags: a usage error with a suggestion, and never a call of a model."""

import os
import pty
import subprocess

import pytest

from batten.cli import COMMANDS
from batten.cli.suggesting import nearest
from tests.agent.stage import Stage, say
from tests.session.processes import BATTEN, environment

from .invoking import Shell


@pytest.fixture
def model(shell: Shell) -> str:
    """A model that would answer: no test may reach it unless it wants to."""
    name = shell.stage.scenario([say("paid")])
    shell.set(BATTEN_MODEL=name)
    return name


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["rnus"], "no command is named 'rnus'; did you mean `batten runs`?"),
        (["Runs"], "did you mean `batten runs`?"),
        (["rnus", "--json"], "did you mean `batten runs`?"),
        (["rnus", "--max-turns", "1"], "did you mean `batten runs`?"),
        (["--verbose", "rnus"], "did you mean `batten runs`?"),
        (["req"], "did you mean `batten requests`?"),
        (["shwo", "last"], "did you mean `batten show`?"),
        (["evnts", "last", "--follow"], "did you mean `batten events`?"),
        (["scenaro", "run", "file.json"], "did you mean `batten scenario`?"),
        (["run", "last"], "did you mean `batten runs`?"),
        (["--quiet", "show", "last"], "the command `show` comes before all flags: batten show"),
    ],
)
def test_a_mistyped_command_is_no_prompt(shell: Shell, argv: list[str], words: str) -> None:
    said = shell(*argv)
    assert (said.code, said.out) == (64, b"")
    assert words in said.err
    assert not (shell.stage.home / "journal.db").exists()


@pytest.mark.usefixtures("model")
def test_a_word_near_a_command_is_no_prompt_even_with_something_piped_in(shell: Shell) -> None:
    said = shell("rnus", stdin=b"a log")
    assert (said.code, said.out) == (64, b"")
    assert "for a prompt: batten -p rnus" in said.err


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(
    ("argv", "stdin"),
    [
        (["-p", "rnus"], b""),
        (["rnus", "-p"], b""),
        (["--prompt", "frobnicate"], b""),
        (["--", "frobnicate"], b""),
        (["frobnicate"], b""),
        (["frobnicate"], b"a log"),
        (["frobnicate", "--output-format", "text"], b""),
        (["--quiet", "frobnicate"], b""),
        (["Fix the tests"], b""),
        (["runs are listed?"], b""),
        (["Show", "me", "the", "files"], b""),
        (["run", "the", "tests"], b""),
        (["report", "all", "bugs"], b""),
    ],
)
def test_a_prompt_that_is_marked_or_reads_like_one_stays_one(
    shell: Shell, argv: list[str], stdin: bytes
) -> None:
    said = shell(*argv, stdin=stdin)
    assert (said.code, said.out) == (0, b"paid\n")


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("is_piped", [False, True])
def test_an_unknown_word_is_no_prompt_where_a_person_types_and_reads(
    stage: Stage, is_piped: bool
) -> None:
    ours, theirs = pty.openpty()
    try:
        ended = subprocess.run(
            [BATTEN, "frobnicate"], stdin=theirs, stdout=subprocess.PIPE if is_piped else theirs,
            stderr=subprocess.PIPE, cwd=stage.workspace, timeout=30, check=False,
            env={**environment(stage), "BATTEN_MODEL": os.environ["BATTEN_MODEL"]},
        )  # fmt: skip
    finally:
        os.close(ours)
        os.close(theirs)
    if is_piped:
        assert (ended.returncode, ended.stdout) == (0, b"paid\n")
    else:
        assert ended.returncode == 64
        assert b"'frobnicate', and a prompt of one word needs -p: batten -p" in ended.stderr


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["-p", "x", "--max-turn", "1"], "did you mean --max-turns?\ntry: batten --help"),
        (["-p", "x", "--max-budget=1"], "did you mean --max-budget-usd?"),
        (["-p", "x", "-output-format", "json"], "did you mean --output-format?"),
        (["-p", "x", "--modle=a/b", "--quite"], "did you mean --model --quiet?"),
        (["events", "last", "--folow"], "did you mean --follow?\ntry: batten events --help"),
        (["runs", "--jsn"], "did you mean --json?\ntry: batten runs --help"),
        (["headless", "--protocol=acp", "--modell=x"], "did you mean --model?"),
        (["conformance", "acp", "--lst"], "did you mean --list?"),
        (["help", "evnts"], "did you mean `batten help events`?"),
        (["help", "frobnicate"], "`batten help` lists them"),
    ],
)
def test_a_mistyped_flag_gets_a_suggestion(shell: Shell, argv: list[str], words: str) -> None:
    said = shell(*argv)
    assert said.code == 64
    assert words in said.err


def test_a_flag_like_no_other_gets_none(shell: Shell) -> None:
    said = shell("-p", "x", "--frobnicate")
    assert said.err == "batten: unrecognized arguments: --frobnicate\ntry: batten --help\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_one_typing_error_in_a_command_finds_it(name: str) -> None:
    swapped = name[1] + name[0] + name[2:]
    missing = name[:-1]
    doubled = name[:2] + name[1:]
    for word in (swapped, doubled, name.upper()):
        assert nearest(word, COMMANDS) == name
    assert len(missing) < 4 or nearest(missing, COMMANDS) == name
    assert nearest("zzzzzzzz", COMMANDS) is None


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["serve", "--bogus"], "--bogus"),
        (["serve", "--prot", "80"], "did you mean --port?"),
        (["worker", "--modle", "x"], "did you mean --model?"),
        (
            ["hosted-runner", "--runner-session-id", "a", "--workspace-root", ".", "--bogus"],
            "--bogus",
        ),
    ],
)
def test_a_mistyped_flag_of_a_server_is_told_in_its_name(
    shell: Shell, argv: list[str], words: str
) -> None:
    shell.set(MAESTRO_WEB_REQUIRE_KEY="0")
    said = shell(*argv)
    assert said.code not in (0, None)
    assert words in said.err
    assert f"try: batten {argv[0]} --help" in said.err
    assert not (shell.stage.home / "journal.db").exists()
