"""The table of threats in docs/security.md, compared with the suite.

Each row names the tests that attack. A module that attacks says so with `pytestmark =
pytest.mark.attack`: it stands in the table, and the table names no test that is not there.
"""

import ast
import re
from pathlib import Path

from msgspec import Struct

from tests.docs.pages import ROOT

_PAGE = ROOT / "docs" / "security.md"
_TESTS = ROOT / "tests"
_HEAD = ["who", "wants", "reaches", "stopped by", "not stopped by", "shown by"]
_ITEM = re.compile(r"`([a-z_0-9/]+\.py)(?:::([a-z_0-9]+))?`")


class Threat(Struct, frozen=True):
    cells: list[str]

    @property
    def shown_by(self) -> list[tuple[str, str]]:
        """Modules, each with the name of a test or, for all of its tests, nothing."""
        return _ITEM.findall(self.cells[-1])


def _threats() -> list[Threat]:
    section = _PAGE.read_text().partition("\n## Threats\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    assert rows[0] == _HEAD
    return [Threat([cell.strip() for cell in row]) for row in rows[2:]]


def _tests_of(module: Path) -> set[str]:
    """The names of a module's tests, those of classes too."""
    tree = ast.parse(module.read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    named = (one.name for one in ast.walk(tree) if isinstance(one, functions))
    return {name for name in named if name.startswith("test_")}


def test_every_threat_says_who_wants_what_and_what_stops_it() -> None:
    threats = _threats()
    assert len(threats) >= 20
    assert [one.cells for one in threats if len(one.cells) != len(_HEAD)] == []
    assert [one.cells for one in threats if not all(one.cells) or not one.shown_by] == []


def test_the_table_names_only_tests_that_exist() -> None:
    missing: list[str] = []
    for module, test in {item for one in _threats() for item in one.shown_by}:
        path = _TESTS / module
        if not path.is_file() or not (test in _tests_of(path) if test else _tests_of(path)):
            missing.append(f"{module}::{test}")
    assert missing == []


def test_every_module_that_attacks_stands_in_the_table() -> None:
    named = {module for one in _threats() for module, _ in one.shown_by}
    mark = re.compile(r"^pytestmark = .*pytest\.mark\.attack\b", re.MULTILINE)
    attacking = {
        str(path.relative_to(_TESTS))
        for path in _TESTS.rglob("test_*.py")
        if mark.search(path.read_text())
    }
    assert attacking != set()
    assert attacking - named == set()
