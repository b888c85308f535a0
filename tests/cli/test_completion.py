"""Completion scripts, in the shells they are for."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from batten.cli import COMMANDS
from tests.agent.stage import Stage, say
from tests.session.processes import BATTEN, environment

from .invoking import Shell

IN_BASH = """
source <(batten completion bash)
complete -p batten >/dev/null || exit 9
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_batten
printf '%s\\n' "${COMPREPLY[@]}"
"""

IN_ZSH = """
autoload -Uz compinit
compinit -D -u
source <(batten completion zsh)
(( $+_comps[batten] )) || exit 9
# In place of the builtins that work only while a line is edited.
compadd() { print -rl -- "${(@P)@[-1]}" }
_describe() { local name=${@[-1]}; print -rl -- "${(@)${(@P)name}%%:*}" }
_files() { print -rl -- "files $*" }
compset() { : }
words=("$@") CURRENT=$#
_batten
"""

IN_FISH = """
batten completion fish | source
complete --do-complete (string join ' ' -- $argv) | string replace -r '\\t.*' ''
"""

Complete = Callable[..., set[str]]


@pytest.fixture(params=["bash", "zsh", "fish"])
def complete(request: pytest.FixtureRequest, stage: Stage) -> Complete:
    """What a shell offers for the last of these words; those that begin like it."""
    shell = str(request.param)
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    argv = {
        "bash": ["bash", "--norc", "-c", IN_BASH, "bash"],
        "zsh": ["zsh", "-f", "-c", IN_ZSH, "zsh"],
        "fish": ["fish", "--no-config", "-c", IN_FISH],
    }[shell]

    def offered(*words: str) -> set[str]:
        found = os.pathsep.join((str(Path(BATTEN).parent), os.environ["PATH"]))
        ended = subprocess.run(
            [*argv, "batten", *words],
            env={**environment(stage), "PATH": found, "HOME": str(stage.directory)},
            cwd=stage.workspace, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (ended.returncode in (0, 1), ended.stderr) == (True, "")
        # zsh and fish are given candidates that do not fit, and leave them out themselves.
        return {line for line in ended.stdout.split("\n") if line.startswith(words[-1]) and line}

    return offered


def test_commands_are_offered_first(complete: Complete) -> None:
    assert set(COMMANDS) <= complete("")
    assert complete("re") == {"reject", "requests", "revert"}


def test_flags_are_those_of_the_command(complete: Complete) -> None:
    assert complete("events", "--f") == {"--follow"}
    assert complete("runs", "--js") == {"--json"}
    assert complete("--max-t") == {"--max-turns", "--max-tokens"}
    assert complete("-p", "hello", "--output-f") == {"--output-format"}
    assert complete("-p", "--output-f") == {"--output-format"}
    assert "--protocol" in complete("headless", "--pro")


def test_values_are_those_of_the_flag(complete: Complete) -> None:
    assert complete("-p", "x", "--output-format", "") == {"text", "json", "stream-json", "events"}
    assert complete("-p", "x", "--quiet", "--sandbox", "b") == {"bwrap"}
    assert complete("answer", "appr_x", "al") >= {"allow"}
    assert complete("completion", "") >= {"bash", "zsh", "fish"}
    assert complete("help", "doc") == {"doctor"}


def test_runs_and_sessions_are_offered_newest_first(complete: Complete, shell: Shell) -> None:
    assert complete("show", "") - {"last"} == set()
    shell.play([say("well")])
    (row,) = shell("runs", "--json").frames()
    assert complete("show", "") == {"last", row["run_id"]}
    assert complete("-p", "x", "--resume", "chat_") == {row["session_id"]}
    assert complete("runs", "--session", "") == {"last", row["session_id"]}


def test_the_names_for_the_scripts_are_listed(shell: Shell) -> None:
    assert shell("completion", "--list", "run").out == b""
    assert shell("completion", "--list", "command").out.decode().split() == list(COMMANDS)
    assert shell("completion", "--list", "model").out == b""
    shell.set(ANTHROPIC_API_KEY="k")
    names = shell("completion", "--list", "model").out.decode().split()
    assert "anthropic/claude-sonnet-4-5" in names
    assert all(name.startswith("anthropic/") for name in names)


def test_a_script_needs_a_shell(shell: Shell) -> None:
    assert shell("completion").code == 64
    said = shell("completion", "tcsh")
    assert said.code == 64
    assert "invalid choice: 'tcsh'" in said.err
