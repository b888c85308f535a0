"""The toolbox of one run: finds tools by any of their names, and checks arguments."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from batten.contract.errors import CallerError
from batten.models.contract import ToolSpec
from batten.tools.aliases import arguments as canonical_arguments
from batten.tools.aliases import canonical
from batten.tools.arguments import problems
from batten.tools.contract import Tool

_LONGEST_NAME = 64
"""Longest unknown name that is compared with the known ones."""


class Toolbox:
    """Tools by name, in the order they are offered to the model."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._validators: dict[str, Any] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        name = tool.spec.name
        if name in self._tools:
            raise CallerError(f"two tools are named {name!r}; tool names must differ")
        self._tools[name] = tool

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def names(self) -> list[str]:
        return list(self._tools)

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self._tools.values())

    def find(self, name: str) -> Tool | None:
        return self._tools.get(name) or self._tools.get(canonical(name))

    def only(self, names: Iterable[str]) -> "Toolbox":
        """The tools with these names; `CallerError` for an unknown name."""
        chosen: list[Tool] = []
        for name in names:
            tool = self.find(name)
            if tool is None:
                raise CallerError(f"no tool is named {name!r}; there are: {', '.join(self._tools)}")
            chosen.append(tool)
        return Toolbox(chosen)

    def without(self, names: Iterable[str]) -> "Toolbox":
        left_out = {canonical(name) for name in names}
        return Toolbox(tool for name, tool in self._tools.items() if name not in left_out)

    def arguments(self, tool: Tool, values: dict[str, Any]) -> dict[str, Any]:
        """Arguments under our names, checked by the schema; errors are worded for the model."""
        named = canonical_arguments(tool.spec.name, values)
        found = problems(tool.spec.parameters, named, partial(self._validator, tool))
        if found:
            raise CallerError(f"invalid arguments for {tool.spec.name}: {'; '.join(found[:5])}")
        return named

    def unknown(self, name: str) -> str:
        """The error the model receives when it calls an unknown tool."""
        near, hint = "", ""
        if len(name) <= _LONGEST_NAME:
            near = min(self._tools, key=lambda known: _distance(name, known), default="")
        if near and _distance(name, near) <= 3:
            hint = f' Did you mean "{near}"?'
        return f"Error: Unknown tool: {name}.{hint} Available tools: {', '.join(self._tools)}"

    def _validator(self, tool: Tool) -> Any:
        validator = self._validators.get(tool.spec.name)
        if validator is None:
            from batten.tools.schema import validator_for

            try:
                validator = validator_for(tool.spec.parameters)
            except ValueError as error:
                reason = str(error).partition("\n")[0]
                message = f"the schema of {tool.spec.name} cannot be used: {reason}"
                raise CallerError(message) from error
            self._validators[tool.spec.name] = validator
        return validator


def _distance(a: str, b: str) -> int:
    """Levenshtein distance."""
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (left != right))
    return row[-1]
