"""Selects the hooks of an event: matchers on names, conditions on calls."""

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from msgspec import Struct

from batten.agent.rules.rule import Rule, may_match, parse_rule
from batten.contract.errors import CallerError
from batten.tools.aliases import aliases
from batten.tools.contract import Tool, judged


class HookedCall(Struct, frozen=True, kw_only=True):
    """The tool call an event is about."""

    tool: Tool
    call_id: str
    arguments: dict[str, Any]


def fits(matcher: str, names: tuple[str, ...]) -> bool:
    """Whether a matcher covers one of these names. Without names it always does.

    `A|B` is either, each part a glob. `.*` is read as `*`: no name of ours has a dot.
    """
    if not names or matcher in ("", "*"):
        return True
    parts = [part.strip().replace(".*", "*") for part in matcher.split("|")]
    return any(fnmatchcase(name, part) for part in parts for name in names)


@lru_cache(maxsize=256)
def names_of(tool: str) -> tuple[str, ...]:
    """A tool's name and its aliases."""
    return (tool, *(alias for alias, ours in aliases().items() if ours == tool))


def condition_of(pattern: str) -> Rule | None:
    """A condition as a rule; `CallerError` if it is no permission pattern."""
    if not pattern:
        return None
    try:
        # A deny rule matches a command line if it matches one of its commands.
        return parse_rule("deny", pattern, "hook")
    except CallerError as error:
        raise CallerError(f"the `if` of a hook: {error}", code="config") from error


def holds(condition: Rule | None, call: HookedCall | None, workspace: str) -> bool:
    """Whether a condition is met; without a call it is not."""
    if condition is None:
        return True
    return call is not None and may_match(condition, judged(call.tool), call.arguments, workspace)
