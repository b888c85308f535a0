"""What is allowed because it only reads, held against what a real bash does with it.

Every line of the corpus that the rules allow runs in a throw-away tree: nothing may change there,
nothing outside may be read. The attacks run too, to see that each would have done something.
"""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from batten.agent.rules.git_reading import COMMANDS
from batten.agent.rules.program_words import Program, known_options
from batten.agent.rules.programs import PROGRAMS
from batten.agent.rules.rule import parse_rule
from batten.agent.rules.verdict import decide
from tests.agent.rules.effects import Tree, needs_bwrap
from tests.agent.rules.tools import shell

pytestmark = [pytest.mark.attack, needs_bwrap]

CORPUS = Path(__file__).with_name("reading_corpus.txt")
_ELSEWHERE = ("jq", "rg", "xxd", "tree", "awk", "mawk", "gawk", "git", "strings", "file", "ps",
              "pgrep", "free", "column", "hexdump", "perl", "make", "patch", "hostname", "man",
              "tar", "node", "python3", "uptime", "diff", "cmp")  # fmt: skip
"""Programs that not every machine has."""


class Case(NamedTuple):
    number: int
    kind: str
    line: str


def cases(*kinds: str) -> list[Case]:
    found: list[Case] = []
    for number, text in enumerate(CORPUS.read_text().splitlines(), 1):
        kind, tab, line = text.partition("\t")
        if tab and kind in kinds:
            found.append(Case(number, kind, line.replace("¶", "\n")))
    return found


def is_installed(line: str) -> bool:
    words = line.replace("(", " ").replace(";", " ").split()
    return all(shutil.which(word) for word in words if word in _ELSEWHERE)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(tmp_path_factory.mktemp("reading"))


@pytest.fixture(autouse=True)
def _at_home(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tree.home))


def verdict(tree: Tree, line: str, *rules: str) -> str:
    parsed = [parse_rule("deny" if rule.startswith("!") else "allow", rule.lstrip("!"))
              for rule in ("bash(no-such-program *)", *rules)]  # fmt: skip
    decision = decide(shell(line), {}, rules=parsed, mode="default", workspace=str(tree.place))
    return decision.verdict


def wrong_allows(tree: Tree, lines: Sequence[str]) -> list[str]:
    """Lines that are allowed unasked and do more than read."""
    allowed = [line for line in lines if verdict(tree, line) == "allow"]
    effects = zip(allowed, tree.effects(allowed), strict=True)
    return [f"{line!r}: {effect}" for line, effect in effects if effect.acted]


def test_nothing_that_is_allowed_unasked_does_more_than_read(tree: Tree) -> None:
    lines = [case.line for case in cases("reads", "acts", "asks", "hides")]
    assert not (wrong := wrong_allows(tree, lines)), "\n".join(wrong)


def test_every_attack_is_asked_about(tree: Tree) -> None:
    wrong = [case for case in cases("acts", "asks") if verdict(tree, case.line) == "allow"]
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("share", [4, pytest.param(1, marks=pytest.mark.soak)])
def test_every_attack_would_have_done_something(tree: Tree, share: int) -> None:
    """Every fourth one of them, day by day."""
    attacks = [case for case in cases("acts") if is_installed(case.line)][::share]
    effects = zip(attacks, tree.effects([case.line for case in attacks]), strict=True)
    vain = [case for case, effect in effects if not effect.acted]
    assert not vain, "\n".join(map(str, vain))


def test_a_rule_that_denies_a_file_holds_for_all_that_shows_it(tree: Tree) -> None:
    hiding = [case for case in cases("hides") if is_installed(case.line)]
    effects = zip(hiding, tree.effects([case.line for case in hiding]), strict=True)
    vain = [case for case, effect in effects if not effect.showed_hidden]
    assert not vain, "\n".join(map(str, vain))
    for rule in ("!Read(./secrets/**)", "!Read(secrets)", "!Read(secrets/key)"):
        wrong = [case for case in hiding if verdict(tree, case.line, rule) == "allow"]
        assert not wrong, f"{rule}\n" + "\n".join(map(str, wrong))


def test_at_most_one_ordinary_reading_line_in_twenty_is_asked_about(tree: Tree) -> None:
    ordinary = cases("reads")
    asked = [case for case in ordinary if verdict(tree, case.line) != "allow"]
    assert len(asked) * 20 <= len(ordinary), "\n".join(map(str, asked))


def test_a_wildcard_that_may_stand_for_an_option_is_asked_about(tree: Tree) -> None:
    lines = ("grep planted *", "wc -l *", "cat *", "cd src && head *")
    assert {verdict(tree, line) for line in lines} == {"allow"}
    for made in ("touch -- -R", "echo x > -R", "cp f ./-v"):
        rules = ("bash(touch *)", "bash(cp *)", "Edit(./**)")
        assert {verdict(tree, f"{made}; {line}", *rules) for line in lines} == {"ask"}
        assert verdict(tree, f"{made}; wc -l ./f", *rules) == "allow"
    option = tree.place / "-R"
    option.touch()
    try:
        assert {verdict(tree, line) for line in lines} == {"ask"}
        assert verdict(tree, "wc -l ./*") == "allow"
    finally:
        option.unlink()


def _with_each_option() -> list[str]:
    """Every program of the table with each option that it lists, and a file."""
    values = {"flag": "", "optional": "=1", "text": "=1", "path": "=pats", "number": "=1"}
    tables = {name: (name, program.options) for name, program in PROGRAMS.items()}
    tables |= {f"git {name}": (f"git {name}", options) for name, options in COMMANDS.items()}
    found: list[str] = []
    for name, (command, options) in tables.items():
        for option, kind in known_options(options).items():
            value = values[kind] if option.startswith("--") else values[kind].lstrip("=")
            first = "" if PROGRAMS.get(name, Program()).skipped == 0 else "p "
            found.append(f"{command} {option.replace('#', '3')}{value} {first}f")
            found.append(f"{command} {option.replace('#', '3')}{value} {first}f out")
    return [line for line in found if not re.search(r"tail.* (-f|-F|--follow|--retry)|free", line)]


@pytest.mark.parametrize("share", [40, pytest.param(1, marks=pytest.mark.soak)])
def test_no_option_of_the_table_makes_a_program_do_more_than_read(tree: Tree, share: int) -> None:
    lines = [line for line in _with_each_option() if is_installed(line)]
    assert len(lines) > 1000
    assert not (wrong := wrong_allows(tree, lines[::share])), "\n".join(wrong)


def test_the_corpus_is_mostly_attacks() -> None:
    ordinary, attacks = cases("reads"), cases("acts", "asks", "hides")
    assert len(set(ordinary)) >= 150
    assert len(attacks) > len(ordinary)
    assert len({case.line for case in (*ordinary, *attacks)}) >= 420
