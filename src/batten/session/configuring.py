"""Applies a client's changes to a session's settings."""

from typing import Any, cast

import msgspec

from batten.agent.rules.rule import Rule, parse_rule
from batten.agent.rules.verdict import GRANTED, MODES
from batten.agent.settings import RunSettings
from batten.contract.depth import DEEPEST, is_too_deep
from batten.contract.errors import CallerError
from batten.contract.facts.policy import Verdict

_FROM_CLIENT = (*GRANTED, "cli")
"""Sources of rules that a client may remove."""
_DEEPEST = 2 * DEEPEST
"""A schema has two levels for each level of the values it describes."""
_RULES = ("rules", "add_rules", "replace_rules", "remove_rules")


class _Given(msgspec.Struct):
    """A rule as a client sends it."""

    action: Verdict
    pattern: str
    source: str = "session"


def reconfigured(
    settings: RunSettings, changes: dict[str, Any], first_models: tuple[str, ...]
) -> RunSettings:
    """The settings with these changes. Raises `CallerError` for an invalid change.

    `permission_mode` (or `mode`), `model` (None for the session's first models), `rules` (replaces
    all but the machine owner's), `add_rules`, `replace_rules` (replaces the client's own rules with
    the same actions) and `remove_rules`, each a list of `{action, pattern}`; else a field of
    `RunSettings`.
    """
    if is_too_deep(changes, _DEEPEST):
        raise CallerError(f"settings nested more than {_DEEPEST} levels deep cannot be used")
    plain: dict[str, Any] = {}
    rules = settings.rules
    for name, value in changes.items():
        if name in ("mode", "permission_mode"):
            plain["mode"] = _mode(value)
        elif name == "model":
            plain["models"] = first_models if value is None else (value, *settings.models[1:])
        elif name in _RULES:
            rules = _changed_rules(rules, name, _parsed(name, value))
        elif name in RunSettings.__struct_fields__:
            plain[name] = value
        else:
            raise CallerError(f"no setting is named {name!r}")
    whole = msgspec.to_builtins(msgspec.structs.replace(settings, rules=rules)) | plain
    try:
        return msgspec.convert(whole, RunSettings)
    except msgspec.ValidationError as error:
        raise CallerError(f"these settings cannot be used: {error}") from error


def _mode(value: object) -> object:
    if value not in MODES:
        raise CallerError(f"no permission mode is named {value!r}; there are: {', '.join(MODES)}")
    return value


def _changed_rules(
    held: tuple[Rule, ...], change: str, given: tuple[Rule, ...]
) -> tuple[Rule, ...]:
    """The rules after a change. A client can remove only its own."""
    same = {(rule.action, rule.pattern) for rule in given}
    actions = {rule.action for rule in given}
    match change:
        case "rules":
            return (*(rule for rule in held if rule.source == "managed"), *given)
        case "add_rules":
            return (*given, *(rule for rule in held if rule not in given))
        case "replace_rules":
            kept = (r for r in held if r.source not in _FROM_CLIENT or r.action not in actions)
            return (*given, *kept)
        case _:
            kept = (
                r for r in held if r.source not in _FROM_CLIENT or (r.action, r.pattern) not in same
            )
            return tuple(kept)


def _parsed(name: str, value: object) -> tuple[Rule, ...]:
    if not isinstance(value, list | tuple):
        raise CallerError(f"{name} is a list of rules")
    return tuple(_rule(name, one) for one in cast("list[object]", value))


def _rule(name: str, value: object) -> Rule:
    if isinstance(value, Rule):
        return value
    try:
        given = msgspec.convert(value, _Given)
    except msgspec.ValidationError as error:
        raise CallerError(f"a rule of {name} is {{action, pattern}}: {error}") from error
    return parse_rule(given.action, given.pattern, given.source)
