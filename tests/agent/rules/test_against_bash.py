"""The reader of command lines, held against bash itself.

Lines are made of pieces of shell at random, and changed at random. Bash runs each line that the
reader accepts, with stubs for programs. Whatever ran must have been seen, and a line that is
allowed must have run nothing but what is.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from batten.agent.rules.commands import CommandLine, command_line
from batten.agent.rules.rule import Rule
from batten.agent.rules.running import runs
from batten.agent.rules.verdict import decide
from tests.agent.rules.oracle import Oracle, fits
from tests.agent.rules.tools import shell

pytestmark = pytest.mark.attack

WORDS = ("a", "b", "c", "d", "ls", "git", "rm", "n", "-", " -a", "1", "E", "EOF", "in", "ü", "f")
OPERATORS = (
    *(";", "&", "|", "&&", "||", "\n", "(", ")", "{", "}", "<", ">>f", "|&", "!", "#", "\t", "\r"),
    *(" > f ", "&>f", " 2>&1 ", " >&2 ", "2>", "<f", "3<>f", ">|f", "{x}>f", "<<<", "<(a", ">(b"),
    *(
        "<<E",
        "<<'E'",
        "<<-E",
        "\nE\n",
        "\n\tE\n",
        "\\\n",
        "^",
        "%",
        "+",
        "@",
        "=",
        "x=",
        "x=1 ",
        "~",
    ),
)
QUOTES = (
    *("'", "'", '"', '"', "`", "`", "\\", "$'", '$"', "\\a", "\\;", '\\"', "\\'", "a'b'", '"a b"'),
    *(
        "'a b'",
        '"$x"',
        "$(",
        "$(",
        ")",
        "${x",
        "${x:-",
        "${#x}",
        "}",
        "$x",
        "$((1+2))",
        "$((",
        "))",
    ),
    *(
        "*",
        "?",
        "[b]",
        "{a,b}",
        "a{1..2}",
        "@(a)",
        "!(a)",
        "$'\\x61'",
        "$'a\\nb'",
        "$'\\'\\t'",
        "$@",
        "$[1]",
        "~/a",
    ),
)
RESERVED = (
    *("if ", "then ", "else ", "elif ", "fi", "do ", "done", "for i in ", "while n; ", "until a; "),
    *(
        "case x in ",
        "esac",
        ";;",
        " in ",
        "time ",
        "time -p ",
        "[[ ",
        " ]]",
        "coproc ",
        "function ",
    ),
    *("select i ", "() { a; }", "a() ", "x=(a b)", "x[0]=1 "),
)
WHOLE = (
    *("if a; then b; fi", "for x in a b; do c $x; done", "while n; do a; done", "{ a; }", "(a)"),
    *("case a in a) b;; esac", "case $x in (a|b) c ;; *) d;; esac", "$(a)", "`b`", '"$(a b)"'),
    *('"`a`"', "a <<E\nx $(b) `c` y\nE\n", "$(a <<'E'\n$(b)'\"\nE\n)", "a \\\n b", "# c\n"),
    *("<<E a\nb\nE\n", "a <<E <<-F\nb\nE\n\tF\n", "a <<E; b\nc\nE\n", "a <<'E' | b\n$(c)\nE\n"),
)
RUNNING = (
    *("env ", "env x=1 ", "xargs ", "a | xargs ", "timeout 1 ", "nice ", "nice -n 1 ", "eval "),
    *(
        "command ",
        "builtin ",
        "exec ",
        "bash -c 'a b'",
        'bash -c "a; b"',
        "bash -c ",
        "stdbuf -o0 ",
    ),
    *("find . -exec a {} \\;", "find . -name '*.txt' -exec b {} +", "find . -delete", "nohup "),
    *("setsid -w ", "echo ", "printf ", "cd .", "true", "test ", "[ a ]", "set -e", "eval 'a;b'"),
    *("eval a b", "git -c x.y=z ", "xargs -I{} a {}", "env -u x a", "git -C . "),
    *("BASH_ENV='$(a b)' ", "env BASH_ENV='`rm b`' bash -c a", "export BASH_ENV='$(rm c)'"),
    *("xargs -i ", "xargs -l1 ", "xargs -a one.txt ", "xargs --replace=x ", "exec -a b "),
    *("trap 'a b; rm c' EXIT", "mapfile -C 'a b' -c 1 <<< c", "alias a='rm b'", "BASH_ENV=f "),
)
PIECES = (*WORDS, *[" "] * 8, *OPERATORS, *QUOTES, *RESERVED, *WHOLE, *RUNNING)

RULES = [Rule("allow", "bash(a *)"), Rule("deny", "bash(rm *)"), Rule("deny", "bash(git push *)")]
ALLOWED = {"a", "ls", "echo", "printf", "cd", "true", "test", "[", ":", "set"}


def generated(seed: int) -> Iterator[str]:
    """Lines without end: new ones, and accepted ones that were changed."""
    chance = random.Random(seed)
    accepted: list[str] = []
    while True:
        if accepted and chance.random() < 0.5:
            line = _changed(chance, chance.choice(accepted))
        else:
            line = "".join(chance.choices(PIECES, k=chance.randint(1, 12)))
        if command_line(line).line is not None:
            accepted = [*accepted[-200:], line][-400:]
            yield line


def _changed(chance: random.Random, line: str) -> str:
    for _ in range(chance.randint(1, 3)):
        start, end = sorted((chance.randint(0, len(line)), chance.randint(0, len(line))))
        match chance.randint(0, 3):
            case 0:
                line = line[:start] + chance.choice(PIECES) + line[start:]
            case 1:
                line = line[:start] + line[start + 1 :]
            case 2:
                line = line[:end] + line[start:end] + line[end:]
            case _:
                line = line[:start] + chance.choice(PIECES) + line[end:]
    return line[:200]


def is_wholly_known(line: CommandLine) -> bool:
    return all(runs(command).is_known for command in line.all_commands)


def held_against_bash(oracle: Oracle, line: str) -> list[tuple[str, ...]]:
    """What bash ran; fails if it ran what was not seen, or what must not run."""
    read = command_line(line)
    ran = oracle.ran(line)
    if is_wholly_known(read):
        for arguments in ran:
            seen = any(fits(command, arguments) for command in read.all_commands)
            assert seen, (
                f"{line!r} ran {arguments}, seen were {[c.words for c in read.all_commands]}"
            )
    decision = decide(shell(line), {}, rules=RULES, mode="default", workspace=oracle.place)
    if decision.verdict == "allow":
        for arguments in ran:
            name = arguments[0]
            wrapper = name in ("eval", "command", "builtin")
            assert wrapper or name in ALLOWED or arguments[:2] in (("git", "log"),), (
                f"{line!r} was allowed and ran {arguments}"
            )
        assert oracle.written() <= {"one.txt"}, f"{line!r} was allowed and wrote a file"
    if decision.verdict != "deny":
        assert not any(arguments[0] == "rm" for arguments in ran) or not is_wholly_known(read), (
            f"{line!r} was not denied and ran rm"
        )
    return ran


def run_lines(folder: Path, seed: int, count: int) -> int:
    oracle = Oracle(folder)
    lines = generated(seed)
    return sum(len(held_against_bash(oracle, next(lines))) for _ in range(count))


def test_what_bash_runs_was_seen(tmp_path: Path) -> None:
    assert run_lines(tmp_path, seed=9, count=150) > 50


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(8))
def test_what_bash_runs_was_seen_in_many_lines(tmp_path: Path, seed: int) -> None:
    assert run_lines(tmp_path, seed=1000 + seed, count=2500) > 500
