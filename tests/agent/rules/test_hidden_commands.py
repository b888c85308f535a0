"""Commands that variables, options and other languages run, held against bash and real programs.

Each line is run with a stub for `rm`. The stub must have run, or the line shows nothing; and a rule
that denies `rm` must have seen it.
"""

import shutil
from pathlib import Path

import pytest

from batten.agent.rules.rule import Rule
from batten.agent.rules.verdict import decide
from tests.agent.rules.oracle import Oracle
from tests.agent.rules.tools import shell

pytestmark = pytest.mark.attack

RULES = [Rule("allow", "bash"), Rule("deny", "bash(rm *)")]
IN_BASH = (
    "PS4='$(rm x)'; set -x; :",
    "declare PS4='$(rm x)'; set -x; :",
    "printf -v PS4 '$(rm x)'; set -x; :",
    "for PS4 in '$(rm x)'; do set -x; :; done",
    "BASH_ENV='$(rm x)' bash -c :",
    "export BASH_ENV='$(rm x)'; bash -c :",
    "env BASH_ENV='`rm x`' bash -c :",
    "env 'BASH_FUNC_a%%=() { rm x; }' bash -c a",
    "PROMPT_COMMAND='rm x' bash --norc -i",
    "PS1='$(rm x)' bash --norc -i",
    "shopt -s expand_aliases; alias l='rm x'\nl",
    "alias l='rm x'; shopt -s expand_aliases; eval l",
    "trap 'n; rm x' EXIT",
    "mapfile -c1 -C'rm x' a <<< y",
    "compgen -C 'rm x'",
    "compgen -W '$(rm x)'",
    "/proc/self/exe -c 'rm x'",
    "exec -la ls rm x",
    "coproc { rm x; }; wait",
    "xargs -a one.txt rm",
    "xargs -0a one.txt rm",
    "xargs -i rm {} <<< y",
    "xargs --replace=% rm % <<< y",
    "find . -execdir rm {} +",
    "env -S 'A=1 bash -c \"rm x\"'",
    "bash -c '((1)); r\\m x'",
    "bash -c 'f() { r\"m\" x; }; f'",
)
"""Run by bash, and by programs that are everywhere."""
BY_PROGRAMS = (
    "LESSOPEN='|rm %s' /usr/bin/less one.txt",
    "TAR_OPTIONS='--checkpoint=1 --checkpoint-action=exec=rm' /usr/bin/tar cf - one.txt",
    "/usr/bin/tar cf - one.txt -I 'rm x'",
    "/usr/bin/git -c alias.y='!rm x' y",
    "/usr/bin/git -c 'alias.y=!f() { rm x; }; f' y",
    "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.y GIT_CONFIG_VALUE_0='!rm x' /usr/bin/git y",
    "GIT_CONFIG_PARAMETERS=\"'alias.y=!rm x'\" /usr/bin/git y",
    "GIT_EDITOR='rm x' /usr/bin/git config --global -e",
    "EDITOR=rm /usr/bin/git config --global -e",
    "GIT_EXTERNAL_DIFF=rm /usr/bin/git diff --no-index one.txt /dev/null",
    "GIT_SSH_COMMAND='rm x' /usr/bin/git ls-remote h:a",
    "GIT_SSH=rm /usr/bin/git ls-remote h:a",
    "/usr/bin/git -c core.sshCommand='rm x' ls-remote h:a",
    "/usr/bin/git -c protocol.ext.allow=always ls-remote 'ext::rm x'",
    "GIT_PROXY_COMMAND=rm /usr/bin/git ls-remote git://127.0.0.1:1/x",
    "/usr/bin/ssh -o ProxyCommand='rm x' h",
    "/usr/bin/ssh -o 'ProxyCommand rm x' h",
    "/usr/bin/scp -o ProxyCommand='rm x' one.txt h:b",
    "/usr/bin/gdb -batch -nx -ex 'shell rm x'",
    "/usr/bin/ed <<< '!rm x'",
    "/usr/bin/ed <<E\n!rm x\nE",
    "echo '!rm x' | /usr/bin/ed",
    "/usr/bin/sed '1e rm x' <<< y",
    "/usr/bin/awk 'BEGIN{system(\"rm x\")}'",
    "/usr/bin/awk 'BEGIN{\"rm x\" | getline}'",
    "/usr/bin/tclsh <<< 'exec rm x'",
    "/usr/bin/make -f - <<< 'a:; rm x'",
    "/usr/bin/make -f - <<E\na:\n\trm x\nE",
    "CC='rm x' /usr/bin/make -f - <<< 'a:; $(CC)'",
    "/usr/bin/make SHELL=rm -f - <<< 'a:; y'",
    '/usr/bin/python3 -c \'import subprocess; subprocess.run(["rm", "x"])\'',
    "/usr/bin/perl -e 'system(\"rm x\")'",
    "/usr/bin/split --filter='rm x' <<< y",
    "/usr/bin/script -qec 'n; rm x' /dev/null",
    "/usr/bin/flock one.txt -c 'n; rm x'",
    "/usr/bin/zip -q a.zip one.txt -T -TT 'rm x'",
    "/usr/bin/prlimit --nofile=99 rm x",
    "ENV='$(rm x)' /usr/bin/dash -i",
)
"""Run by programs that may be missing."""
UNKNOWN = (
    "bash --rcfile <(echo rm x) -i",
    "BASH_ENV=<(echo rm x) bash -c :",
    "xargs -a <(echo rm x) env",
    "xargs env <<< 'rm x'",
    "/proc/$$/exe -c 'rm x'",
    "PAGER='bash -s'; printf 'rm x' | $PAGER",
)
"""What these run stands in files and streams, or is not known."""


def verdict_on(line: str) -> str:
    return decide(shell(line), {}, rules=RULES, mode="default").verdict


def is_here(line: str) -> bool:
    programs = [word for word in line.split() if word.startswith("/usr/bin/")]
    return all(shutil.which(program) for program in programs)


@pytest.mark.parametrize("line", [*IN_BASH, *filter(is_here, BY_PROGRAMS)])
def test_a_rule_denies_what_a_line_runs_in_a_hidden_way(line: str, tmp_path: Path) -> None:
    ran = Oracle(tmp_path).ran(line)
    assert any(arguments[0] == "rm" for arguments in ran), ran
    assert verdict_on(line) == "deny"


@pytest.mark.parametrize("line", UNKNOWN)
def test_a_line_that_may_run_what_a_rule_denies_is_asked_about(line: str, tmp_path: Path) -> None:
    ran = Oracle(tmp_path).ran(line)
    assert any(arguments[0] == "rm" for arguments in ran), ran
    assert verdict_on(line) == "ask"


@pytest.mark.parametrize("name", ["BASH_ENV", "LD_PRELOAD", "GIT_SSH_COMMAND", "LESSOPEN", "IFS"])
@pytest.mark.parametrize(
    "line", ["{}=./x git log", "env {}=./x git log", "export {}=./x; git log", "read {}; git log"]
)
def test_no_rule_for_a_program_allows_a_variable_that_makes_it_run_another(
    name: str, line: str
) -> None:
    rules = [Rule("allow", "bash(git *)"), Rule("allow", "bash(export *)")]
    rules += [Rule("allow", "bash(env *)"), Rule("allow", "bash(read *)")]
    asked = shell(line.format(name))
    assert decide(asked, {}, rules=rules, mode="default").verdict == "ask"
