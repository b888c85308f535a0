"""A corpus of command lines: what models write, what attackers write, each with its verdict."""

from pathlib import Path
from typing import NamedTuple

import pytest

from batten.agent.rules.rule import Rule, parse_rule
from batten.agent.rules.verdict import decide
from batten.contract.facts.policy import Verdict
from tests.agent.rules.tools import shell

pytestmark = pytest.mark.attack

CORPUS = Path(__file__).with_name("corpus.txt")
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\\\": "\\", "\\x1b": "\x1b", "\\x00": "\0"}


class Case(NamedTuple):
    number: int
    rules: tuple[Rule, ...]
    verdict: str
    line: str


def _unescaped(text: str) -> str:
    pieces: list[str] = []
    at = 0
    while at < len(text):
        length = next((len(e) for e in _ESCAPES if text.startswith(e, at)), 0)
        pieces.append(_ESCAPES[text[at : at + length]] if length else text[at])
        at += length or 1
    return "".join(pieces)


def _rule(text: str) -> Rule:
    action, _, pattern = text.strip().partition(" ")
    verdicts: dict[str, Verdict] = {"allow": "allow", "ask": "ask", "deny": "deny"}
    return parse_rule(verdicts[action], pattern)


def cases() -> list[Case]:
    found: list[Case] = []
    rules: tuple[Rule, ...] = ()
    for number, text in enumerate(CORPUS.read_text().splitlines(), 1):
        if text.startswith("% rules:"):
            rules = tuple(map(_rule, text.removeprefix("% rules:").split(" ; ")))
        elif text and not text.startswith("# "):
            verdict, _, line = text.partition("\t")
            verdict = "ask" if verdict == "asked" else verdict
            found.append(Case(number, rules, verdict, _unescaped(line)))
    return found


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("workspace")
    for name in (".git", "src/sub", "tests", "secrets"):
        (folder / name).mkdir(parents=True)
    return str(folder)


def test_every_line_has_the_verdict_of_the_corpus(workspace: str) -> None:
    """Whatever the order of the rules."""
    wrong: list[str] = []
    for number, rules, verdict, line in cases():
        for ordered in (rules, rules[::-1]):
            found = decide(shell(line), {}, rules=ordered, mode="default", workspace=workspace)
            if found.verdict != verdict:
                wrong.append(
                    f"{number}: {line!r} is {found.verdict}, not {verdict}: {found.reason}"
                )
    assert not wrong, "\n".join(wrong)


def test_the_corpus_has_at_least_500_lines() -> None:
    assert len({(case.rules, case.line) for case in cases()}) >= 500
