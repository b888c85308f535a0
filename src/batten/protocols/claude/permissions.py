"""Translates Claude Code's permission modes and rules to ours."""

import re
from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from batten.contract.errors import CallerError
from batten.protocols.claude.control import as_list
from batten.protocols.claude.names import our_name

Action = Literal["allow", "ask", "deny"]
_LONGEST_NAME = 60
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


def patterns(entry: str, home: str = "~") -> list[str]:
    """Our patterns for one of Claude Code's; several where one of ours covers less."""
    name, _, rest = entry.strip().partition("(")
    content = rest.removesuffix(")").strip()
    tool = our_name(name) or name
    if tool.startswith("mcp__") and tool.count("__") == 1:
        return [f"{tool}__*"]
    if not content or content == "*":
        return [tool]
    return [f"{tool}({one})" for one in _contents(tool, content, home)]


def _contents(tool: str, content: str, home: str) -> list[str]:
    match tool:
        case "bash":
            # `git:*` is the command alone or with any arguments, not `gitk`.
            before = content.removesuffix(":*")
            return [content] if before == content else [before, f"{before} *"]
        case "web_fetch" if content.startswith("domain:"):
            host = content.removeprefix("domain:")
            return [f"http*://{host}", f"http*://{host}[/:]*"]
        case "read_file" | "write_file" | "edit_file" | "multi_edit" | "glob" | "grep":
            return [_path(content, home)]
        case _:
            return [content]


def _path(content: str, home: str) -> str:
    """`//x` is absolute, `/x` and `./x` begin at the workspace, `~/x` at home."""
    if content.startswith("//"):
        return content[1:]
    if content.startswith("~/"):
        return home.rstrip("/") + content[1:]
    return content.removeprefix("./").lstrip("/")


def rules(action: Action, text: str, home: str = "~") -> list[RuleText]:
    return [RuleText(action, one) for entry in listed(text) for one in patterns(entry, home)]


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


def read_update(update: dict[str, Any], home: str = "~") -> Update:
    """Parse a permission update; `CallerError` for one that we cannot apply."""
    match update:
        case {"type": "setMode", "mode": str(mode)}:
            our_mode(mode)
            return Update("mode", mode=mode)
        case {"type": str(kind), "behavior": "allow" | "deny" | "ask" as action} if kind in _VERBS:
            entries = as_list(update.get("rules"))
            if entries is None:
                raise CallerError("the rules of a permission update are no list")
            found = [rule for one in entries for rule in _rule(action, one, home)]
            return Update(_VERBS[kind], tuple(found), action)
        case _:
            named = repr(update.get("type"))[:_LONGEST_NAME]
            raise CallerError(f"the permission update {named} is not supported as it is")


def _rule(action: Action, rule: object, home: str) -> list[RuleText]:
    match rule:
        case {"toolName": str(name), "ruleContent": str(content)} if content:
            return [RuleText(action, one) for one in patterns(f"{name}({content})", home)]
        case {"toolName": str(name)}:
            return [RuleText(action, one) for one in patterns(name, home)]
        case _:
            raise CallerError("a rule of a permission update has no toolName")


def place(held: Sequence[Action], action: Action) -> int:
    """The index of a new rule: deny rules come before ask rules, and those before allow rules, as
    in Claude Code. The order of the others stays."""
    if action == "allow":
        return 1 + max((index for index, one in enumerate(held) if one != "allow"), default=-1)
    before = ("deny",) if action == "ask" else ()
    return next((index for index, one in enumerate(held) if one not in before), len(held))
