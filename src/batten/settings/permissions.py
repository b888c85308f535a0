"""Parses the permissions of a settings file: rules and the mode.

The agent reads and matches patterns; this module checks only their outer form.
"""

import re
from typing import Any, Literal, cast

from msgspec import Struct

from batten.settings.contract import RuleConfig, Scope
from batten.settings.files import wrong
from batten.settings.table import Table, kind_of

Action = Literal["allow", "ask", "deny"]
_ACTIONS = ("allow", "ask", "deny")
_NOTHING = ("", "~", ":*")
"""What matches nothing behind a colon or in parentheses."""
PERMISSION_MODES = ("default", "acceptEdits", "plan", "auto", "dontAsk", "bypassPermissions")


class Permissions(Struct, frozen=True, kw_only=True):
    rules: tuple[RuleConfig, ...] = ()
    mode: str | None = None
    enforce: bool = False
    directories: tuple[str, ...] = ()
    """As written: relative paths start at the folder of the file."""


def read_permissions(table: Table, scope: Scope) -> Permissions:
    """The rules of a file, without expired ones. Their order has no meaning."""

    def listed(action: Action) -> list[RuleConfig | None]:
        return table.each(action, lambda at, key, entry: _rule(at, key, entry, scope, action))

    ordered = table.each("rules", lambda at, key, entry: _rule(at, key, entry, scope, None))
    every = [*listed("deny"), *ordered, *listed("ask"), *listed("allow")]
    forbids = table.one_of("disable_bypass_permissions_mode", ("disable",)) is not None
    return Permissions(
        rules=tuple(rule for rule in every if rule is not None),
        mode=table.one_of("default_mode", PERMISSION_MODES),
        enforce=bool(table.switch("enforce")) or forbids,
        directories=table.texts("additional_directories"),
    )


def _rule(
    table: Table, key: str, entry: Any, scope: Scope, action: Action | None
) -> RuleConfig | None:
    """A pattern, or a table with one; None if it has expired."""
    if isinstance(entry, str) and action is not None:
        return RuleConfig(action=action, pattern=read_pattern(table, key, entry), scope=scope)
    rule = table.within(key, entry)
    pattern = rule.text("pattern")
    rule_action = rule.one_of("action", _ACTIONS if action is None else (action,)) or action
    if pattern is None or rule_action is None:
        raise table.wrong(key, 'must have a pattern and an action, such as "Bash(git *)", "allow"')
    for remark in ("comment", "reason"):
        rule.text(remark)
    panel = rule.text("panel") or ""
    if panel and rule_action != "ask":
        raise rule.wrong("panel", f"answers what is asked, and the action is {rule_action}")
    has_expired = _has_expired(rule)
    for place in rule.unknown():
        known = "pattern, action, panel, comment, reason, expires_at"
        raise wrong(f"{table.file}: {place} is not a key of a rule; those are: {known}")
    if has_expired:
        return None
    pattern = read_pattern(rule, "pattern", pattern)
    return RuleConfig(action=cast("Action", rule_action), pattern=pattern, scope=scope, panel=panel)


def read_pattern(table: Table, key: str, text: str) -> str:
    """Check a pattern's syntax."""
    text = text.strip()
    found = re.fullmatch(r"([^:(]+)(?::(.*)|\((.*)\))?", text, re.DOTALL)
    rest = found and (found[2] if found[2] is not None else found[3])
    if not found or not found[1].strip() or (rest is not None and rest.strip() in _NOTHING):
        raise table.wrong(
            key, f"is no rule: {text!r}; write Tool, Tool(pattern) or Tool:key=pattern"
        )
    return text


def _has_expired(rule: Table) -> bool:
    """Whether `expires_at` has passed; a time without a zone is UTC."""
    value = rule.get("expires_at")
    if value is None:
        return False
    from datetime import UTC, date, datetime, time

    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        moment = None
    if isinstance(moment, date) and not isinstance(moment, datetime):
        moment = datetime.combine(moment, time())
    if not isinstance(moment, datetime):
        what = repr(value) if isinstance(value, str) else kind_of(value)
        raise rule.wrong("expires_at", f"must be a time such as 2027-01-31T12:00:00Z, not {what}")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment <= datetime.now(UTC)
