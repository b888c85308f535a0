"""The page on scenarios names every key that is read, and no other."""

import re
from pathlib import Path
from typing import get_args

from msgspec import Struct
from msgspec.structs import fields

from batten.models import scenario as script
from batten.models.scenario import decode

PAGE = (Path(__file__).parents[2] / "docs" / "scenarios.md").read_text("utf-8")
KEYS = PAGE.split("\n## Keys\n", 1)[1]


def names(kind: type[Struct]) -> set[str]:
    return {field.encode_name for field in fields(kind)}


def table(head: str) -> list[tuple[str, str]]:
    """The rows of a table: what stands in its two columns."""
    found = re.search(rf"^\| {head} \|.*?(?=\n\n|\Z)", KEYS, re.DOTALL | re.MULTILINE)
    assert found is not None
    rows = found[0].splitlines()[2:]
    return [tuple(cell.strip() for cell in row.strip("|").split("|", 1)) for row in rows]  # type: ignore[misc]


def quoted(text: str) -> set[str]:
    return set(re.findall(r"`([A-Za-z_]\w*)`", text))


def test_the_keys_of_a_scenario_and_its_metadata_are_listed() -> None:
    listed = {name for key, _ in table("scenario") for name in quoted(key)}
    assert listed == names(script.Scenario)
    assert names(script.Frame) <= quoted(dict(table("scenario"))["`frames`"])
    assert {name for key, _ in table("metadata") for name in quoted(key)} == names(script.Metadata)


def test_the_keys_of_each_statement_are_listed() -> None:
    rows = {re.sub(r"[`*]", "", key): text for key, text in table("statement")}
    kinds = {str(one.__struct_config__.tag): one for one in get_args(script.Statement)}
    assert rows.keys() == kinds.keys()
    for tag, kind in kinds.items():
        assert names(kind) <= quoted(rows[tag]), tag
    assert names(script.SeenResult) <= quoted(rows["tool_call"])


def test_the_kinds_and_keys_of_assertions_are_listed() -> None:
    listed = {kind for key, _ in table("assertion") for kind in quoted(key)}
    assert listed == set(get_args(script.AssertionKind))
    everything = quoted(KEYS.split("Every assertion", 1)[1])
    assert names(script.Assertion) <= everything
    values = {"error", "warning", "completed", "max_turns"}
    assert everything - values - (listed - {"outcome"}) == names(script.Assertion)


def test_the_example_is_a_scenario() -> None:
    (example,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert decode(example.encode()).id == "list-files"
