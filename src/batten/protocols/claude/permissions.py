"""Translates Claude Code's permission modes and rules to ours."""

import re
from typing import Any, Literal

from msgspec import Struct

from batten.contract.errors import CallerError
from batten.protocols.claude.control import as_list
from batten.protocols.claude.names import our_name

Action = Literal["allow", "ask", "deny"]
_LONGEST_NAME = 60
_WITH_PATHS = frozenset(("read_file", "write_file", "edit_file", "multi_edit", "glob", "grep"))
_LIST = re.compile(r"(?:[^\s,(]|\([^)]*\)?)+")

MODES: dict[str, str] = {
    "default": "default",
    "acceptEdits": "acceptEdits",
    "plan": "plan",
    "auto": "auto",
    "bypassPermissions": "dontAsk",
    "dontAsk": "default",
}
"""Claude Code's modes and ours. Its deny rules hold in every mode, which our `bypassPermissions`
does not promise. Its `dontAsk` denies calls that need a question."""


class RuleText(Struct, frozen=True):
    """A rule in our spelling: `Tool` or `Tool(glob)`."""

    action: Action
    pattern: str


def our_mode(mode: str) -> str:
    """Our mode for Claude Code's name; `CallerError` for an unknown one."""
    if mode not in MODES:
        raise CallerError(
            f"no permission mode is named {mode!r}; there are: {', '.join(MODES)}", code="usage"
        )
    return MODES[mode]


def claude_mode(mode: str) -> str:
    """Claude Code's name for our mode."""
    return {"dontAsk": "bypassPermissions", "disabled": "bypassPermissions"}.get(mode, mode)


def asks(mode: str) -> bool:
    """Whether the client decides where no rule does."""
    return mode != "dontAsk"


def listed(text: str) -> list[str]:
    """The entries of `--allowedTools`, separated by commas or spaces outside parentheses."""
    return _LIST.findall(text)


def pattern(entry: str) -> str:
    """Our spelling of one of their rules. `/x` begins at the workspace, `//x` at the root."""
    name, _, rest = entry.strip().partition("(")
    content = rest.removesuffix(")").strip()
    tool = our_name(name) or name
    if not content or content == "*":
        return tool
    if tool in _WITH_PATHS and content.startswith("/") and not content.startswith("//"):
        content = f".{content}"
    return f"{tool}({content})"


def rules(action: Action, text: str) -> list[RuleText]:
    """The rules of a list of tools."""
    return [RuleText(action, pattern(entry)) for entry in listed(text)]


class Update(Struct, frozen=True):
    """A change to the permissions of a session."""

    kind: Literal["add", "replace", "remove", "mode"]
    rules: tuple[RuleText, ...] = ()
    action: Action = "allow"
    mode: str = ""


_VERBS: dict[str, Literal["add", "replace", "remove"]] = {
    "addRules": "add",
    "replaceRules": "replace",
    "removeRules": "remove",
}


def read_update(update: dict[str, Any]) -> Update:
    """Parse a permission update; `CallerError` for one that we cannot apply."""
    match update:
        case {"type": "setMode", "mode": str(mode)}:
            our_mode(mode)
            return Update("mode", mode=mode)
        case {"type": str(kind), "behavior": "allow" | "deny" | "ask" as action} if kind in _VERBS:
            entries = as_list(update.get("rules"))
            if entries is None:
                raise CallerError("the rules of a permission update are no list")
            return Update(_VERBS[kind], tuple(_rule(action, one) for one in entries), action)
        case _:
            named = repr(update.get("type"))[:_LONGEST_NAME]
            raise CallerError(f"the permission update {named} is not supported as it is")


def _rule(action: Action, rule: object) -> RuleText:
    match rule:
        case {"toolName": str(name), "ruleContent": str(content)} if content:
            return RuleText(action, pattern(f"{name}({content})"))
        case {"toolName": str(name)}:
            return RuleText(action, pattern(name))
        case _:
            raise CallerError("a rule of a permission update has no toolName")
