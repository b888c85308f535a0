"""Who may do what: rules with patterns, modes, and the one verdict on a tool call.

A rule is `Tool`, `Tool(glob)` or `Tool:glob` on the call's subject (a command, a path, a
URL), `Bash:~glob` anywhere in a command, or `Tool:key=glob[,key=glob]` on named arguments.
The first rule that matches decides; a mode then changes what is left at `ask`.
"""

import re
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Any, Literal

from msgspec import Struct

from batten.contract.errors import CallerError
from batten.contract.facts.policy import Verdict
from batten.tools.aliases import canonical
from batten.tools.contract import Tool

Mode = Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]
MODES: tuple[Mode, ...] = ("default", "acceptEdits", "plan", "dontAsk", "bypassPermissions")


class Rule(Struct, frozen=True):
    action: Verdict
    pattern: str
    source: str = "cli"

    def __str__(self) -> str:
        return f"{self.action} {self.pattern}"


class Decision(Struct, frozen=True):
    verdict: Verdict
    reason: str
    decided_by: str


_DEFAULTS = (
    *(Rule("allow", name, "default") for name in ("read_file", "glob", "grep", "todo_write")),
    *(Rule("allow", name, "default") for name in ("ask_user", "agent")),
    Rule("ask", "*", "default"),
)


def parse_rule(action: Verdict, text: str, source: str = "cli") -> Rule:
    """A rule from its text; `CallerError` says what is wrong with it."""
    text = text.strip()
    name, _, rest = _split(text)
    if not name:
        raise CallerError(f"permission rule {text!r} names no tool; write Tool or Tool(pattern)")
    if "(" in text and not text.endswith(")") and ":" not in text.partition("(")[0]:
        raise CallerError(f"permission rule {text!r} has an unclosed parenthesis")
    if text.endswith("()"):
        raise CallerError(f"permission rule {text!r} matches nothing: give a pattern or no ()")
    del rest
    return Rule(action, text, source)


def decide(
    tool: Tool,
    arguments: dict[str, Any],
    *,
    rules: Sequence[Rule],
    mode: Mode,
    workspace: str = "",
) -> Decision:
    """The verdict on one call. Explicit allow and deny rules hold in every mode but bypass."""
    name = tool.spec.name
    if mode == "bypassPermissions":
        return Decision("allow", "all permissions are bypassed", "mode:bypassPermissions")
    rule = next(
        rule for rule in (*rules, *_DEFAULTS) if matches(rule.pattern, tool, arguments, workspace)
    )
    author = f"rule:{rule.source}:{rule.pattern}"
    explicit = rule.source != "default"
    if mode == "plan" and tool.effect not in ("read", "none", "network") and rule.action != "deny":
        return Decision("deny", f"{name} changes things; the mode is plan", "mode:plan")
    if rule.action == "allow":
        return Decision("allow", f"allowed by {rule.pattern}", author)
    if rule.action == "deny":
        return Decision("deny", f"denied by {rule.pattern}", author)
    if mode == "dontAsk":
        return Decision("allow", "nothing is asked in this mode", "mode:dontAsk")
    if mode == "acceptEdits" and tool.effect == "write" and not explicit:
        return Decision("allow", "edits are accepted in this mode", "mode:acceptEdits")
    return Decision("ask", f"{name} needs approval", author)


def matches(pattern: str, tool: Tool, arguments: dict[str, Any], workspace: str = "") -> bool:
    name, form, rest = _split(pattern)
    if name != "*" and not _glob(canonical(name), tool.spec.name):
        return False
    if form == "bare":
        return True
    subject = tool.subject(arguments)
    if rest.startswith("~"):
        return _glob(f"*{rest[1:]}*", subject)
    named = _named(rest)
    if named:
        return all(_glob(glob, str(_lookup(arguments, key))) for key, glob in named)
    if _glob(rest, subject):
        return True
    prefix = workspace.rstrip("/") + "/"
    return bool(workspace) and subject.startswith(prefix) and _glob(rest, subject[len(prefix) :])


def _split(pattern: str) -> tuple[str, Literal["bare", "subject"], str]:
    """The tool, whether a subject follows, and the subject's pattern."""
    found = re.fullmatch(r"([^:(]+)(?::(.*)|\((.+)\))?", pattern.strip(), re.DOTALL)
    if found is None:
        return "", "bare", ""
    name, after_colon, inside = found.groups()
    rest = after_colon if after_colon is not None else inside
    return name.strip(), "bare" if rest is None else "subject", rest or ""


def _named(rest: str) -> list[tuple[str, str]]:
    pairs = [part.partition("=") for part in rest.split(",")]
    if all(equals and re.fullmatch(r"[A-Za-z_][\w.]*", key) for key, equals, _ in pairs):
        return [(key, glob) for key, _, glob in pairs]
    return []


def _lookup(arguments: Any, dotted: str) -> Any:
    for key in dotted.split("."):
        arguments = arguments.get(key, "") if isinstance(arguments, dict) else ""
    return arguments


@lru_cache(maxsize=512)
def _compiled(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob), re.DOTALL)


def _glob(glob: str, text: str) -> bool:
    return _compiled(glob).match(text) is not None
