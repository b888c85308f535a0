"""The toolbox: schemas that refer elsewhere, and names nobody has."""

import socket
from typing import Any

import pytest

from batten.contract.errors import CallerError
from batten.contract.facts.tool import ToolKind
from batten.models.contract import ToolSpec
from batten.tools.contract import Effect, ToolContext, ToolOutput
from batten.tools.registry import Toolbox
from batten.tools.schema import validator_for


class Referring:
    kind: ToolKind = "mcp"
    effect: Effect = "none"

    def __init__(self, schema: dict[str, Any]) -> None:
        self.spec = ToolSpec("refer", "Refers", schema)

    def subject(self, arguments: dict[str, Any]) -> str:
        return ""

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        return ToolOutput(text="")


def test_a_schema_that_refers_to_the_network_is_refused_and_nothing_is_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        tool = Referring({"$ref": f"http://127.0.0.1:{listening.getsockname()[1]}/s"})
        with pytest.raises(CallerError, match="may refer only to itself"):
            Toolbox([tool]).arguments(tool, {"a": 1})
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_a_schema_that_refers_to_a_file_is_refused() -> None:
    with pytest.raises(ValueError, match="may refer only to itself"):
        validator_for({"$ref": "file:///etc/hostname"})


def test_a_schema_may_refer_to_itself() -> None:
    schema = {"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}}
    tool = Referring({"type": "object", **schema})
    assert Toolbox([tool]).arguments(tool, {"a": 1}) == {"a": 1}
    with pytest.raises(CallerError, match="invalid arguments"):
        Toolbox([tool]).arguments(tool, {"a": "x"})


def test_a_property_may_have_several_types() -> None:
    tool = Referring({"type": "object", "properties": {"a": {"type": ["string", "null"]}}})
    for value in ("x", None):
        assert Toolbox([tool]).arguments(tool, {"a": value}) == {"a": value}
    with pytest.raises(CallerError, match="invalid arguments"):
        Toolbox([tool]).arguments(tool, {"a": 1})


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": "x"},
        {"required": 5},
        {"required": [["x"]]},
        {"properties": {"a": {"type": "string", "enum": 5}}},
        {"properties": {"a": {"type": "object", "properties": []}}},
        {"type": ["objects"]},
    ],
)
def test_a_schema_that_is_none_is_told_as_such(schema: dict[str, Any]) -> None:
    tool = Referring({"type": "object", **schema})
    with pytest.raises(CallerError, match="the schema of refer cannot be used"):
        Toolbox([tool]).arguments(tool, {"a": "x"})


@pytest.mark.parametrize(("name", "hinted"), [("refre", True), ("refer" * 13, False)])
def test_a_near_name_is_hinted_at(name: str, hinted: bool) -> None:
    assert ("Did you mean" in Toolbox([Referring({})]).unknown(name)) is hinted


def test_a_long_unknown_name_is_not_compared() -> None:
    near = Referring({})
    near.spec = ToolSpec("r" * 66, "Long", {})
    assert "Did you mean" not in Toolbox([near]).unknown("r" * 65)
