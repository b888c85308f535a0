"""The settings of a session's runs: from its specification, else from the resumed session, else
from settings files.
"""

from typing import Any

import msgspec

from batten.agent.rules.rule import Rule, parse_rule
from batten.agent.rules.verdict import AUTO_ALLOW, MODES, Mode
from batten.agent.settings import PARALLEL_READS, RunSettings
from batten.contract.errors import CallerError, NoCredentials, UnknownModel
from batten.models.registry import provider_named, split_name
from batten.models.retry import MAX_RETRIES
from batten.settings.contract import RuleConfig, Settings
from batten.wiring.home import absolute
from batten.wiring.spec import SessionSpec

_BYPASS_VARIABLE = "BATTEN_ALLOW_DANGEROUSLY_SKIP_PERMISSIONS"
_MODEL_VARIABLE = "BATTEN_MODEL"
_MODE_VARIABLE = "BATTEN_DEFAULT_PERMISSION_MODE"
_RETRIES_VARIABLE = "BATTEN_MAX_RETRIES"
_LONGEST_COUNT = 6
"""Digits of a number of retries."""
_OWN = ("cli", "grant")
"""Sources of the rules that a session keeps; the others are read from their files each time."""
_COPIED = (
    *("max_turns", "max_seconds", "max_output_tokens", "budget_micros_usd", "request_seconds"),
    *("temperature", "thinking_tokens", "record_thinking", "doom_threshold", "compact_ratio"),
    *(
        "compact_model",
        "protect_tokens",
        "system",
        "append_system",
        "output_schema",
        "fail_on",
        "tools",
        "auto_apply",
    ),
)
"""Fields that a specification and the settings of a run share; None leaves them as they are."""
_OF_INVOCATION: dict[str, Any] = {
    "max_turns": None,
    "max_seconds": None,
    "budget_micros_usd": None,
    "spent_before_micros_usd": 0,
    "output_schema": None,
    "fail_on": (),
    "instructions": True,
}
"""Limits and demands that each opening states; a resumed session keeps those of its last opening
only for the run that it left unfinished.
"""
_DEFAULT_MODELS = (
    ("ANTHROPIC_API_KEY", "anthropic/claude-sonnet-4-6"),
    ("ANTHROPIC_AUTH_TOKEN", "anthropic/claude-sonnet-4-6"),
    ("OPENAI_API_KEY", "openai/gpt-5.5"),
    ("GEMINI_API_KEY", "google/gemini-2.5-flash"),
    ("GOOGLE_API_KEY", "google/gemini-2.5-flash"),
)


def run_settings(
    spec: SessionSpec, earlier: RunSettings | None, found: Settings, *, goes_on: bool = False
) -> RunSettings:
    """`earlier` are the settings of the resumed session, `found` those of files.

    `goes_on`: the opening continues an unfinished run, whose limits and demands hold.
    """
    changes: dict[str, Any] = ({} if goes_on else _OF_INVOCATION) | {
        name: value for name in _COPIED if (value := getattr(spec, name)) is not None
    }
    if not spec.needs_model:
        changes["models"] = ()
    elif spec.models or spec.provider or spec.fallback_models or earlier is None:
        models = spec.models or (_usual_model(spec, earlier, found),)
        names = (*models, *(spec.fallback_models or found.fallback_models))
        changes["models"] = tuple(
            _full_name(name, spec, found.entry_points.models) for name in names
        )
    mode = spec.mode or _usual_mode(spec, found, earlier)
    if mode is not None:
        changes["mode"] = mode
    changes["rules"] = _rules(spec, earlier, found)
    if spec.max_retries is not None or not goes_on:
        changes["max_retries"] = _retries(spec, found)
    changes["parallel_reads"] = found.parallel_reads or PARALLEL_READS
    changes["resolvers"] = spec.resolvers
    if spec.bare or not spec.instructions:
        changes["instructions"] = False
    if earlier is None:
        settings = RunSettings(**changes)
    else:
        settings = msgspec.structs.replace(earlier, **changes)
    _check_mode(settings.mode, spec, found)
    return settings


def _retries(spec: SessionSpec, found: Settings) -> int:
    """How often a failed model call is made again; a resumed session does not keep it."""
    if spec.max_retries is not None:
        return spec.max_retries
    named = spec.environ.get(_RETRIES_VARIABLE)
    if not named:
        usual = MAX_RETRIES if spec.usual_retries is None else spec.usual_retries
        return usual if found.max_retries is None else found.max_retries
    if named.isascii() and named.isdigit() and len(named) <= _LONGEST_COUNT:
        return int(named)
    raise CallerError(
        f"{_RETRIES_VARIABLE} is {named[:40]!r}; it must be a whole number, 0 to 999999",
        code="config",
    )


def _check_mode(mode: Mode, spec: SessionSpec, found: Settings) -> None:
    if mode in ("bypassPermissions", "disabled") and not found.may_bypass:
        raise CallerError(
            f"the permission mode {mode} is forbidden by the settings of this machine",
            code="config",
        )
    may_bypass = spec.may_bypass or spec.environ.get(_BYPASS_VARIABLE) == "1"
    if mode == "bypassPermissions" and not may_bypass:
        raise CallerError(
            "the permission mode bypassPermissions runs even what is denied; to use it, give "
            f"--allow-dangerously-skip-permissions too, or set {_BYPASS_VARIABLE}=1",
            code="usage",
        )


def _rules(spec: SessionSpec, earlier: RunSettings | None, found: Settings) -> tuple[Rule, ...]:
    """The rules of the specification, or else of the resumed session; then those of files."""
    own = spec.rules
    if not own and earlier is not None:
        own = tuple(rule for rule in earlier.rules if rule.source in _OWN)
    files = tuple(map(_of_file, found.rules))
    everything = (Rule("allow", "*", AUTO_ALLOW),) if spec.auto_allow else ()
    return (*own, *files, *everything)


def _of_file(rule: RuleConfig) -> Rule:
    try:
        read = parse_rule(rule.action, rule.pattern, rule.scope)
        return msgspec.structs.replace(read, panel=rule.panel) if rule.panel else read
    except CallerError as error:
        raise CallerError(f"the {rule.scope} settings: {error}", code="config") from error


def _usual_mode(spec: SessionSpec, found: Settings, earlier: RunSettings | None) -> Mode | None:
    """The mode if the specification names none. A resumed session does not keep the mode
    `disabled`: each opening must request it.
    """
    if earlier is not None and earlier.mode != "disabled":
        return earlier.mode
    named = spec.environ.get(_MODE_VARIABLE) or found.permission_mode or spec.usual_mode
    if named is None:
        return None if earlier is None else "default"
    if named in MODES:
        return named
    raise CallerError(
        f"the permission mode {named!r} of {_MODE_VARIABLE} or the settings is not one of "
        f"{', '.join(MODES)}",
        code="config",
    )


def _full_name(name: str, spec: SessionSpec, also: tuple[str, ...]) -> str:
    """`provider/model` from a possibly shorter name; a scenario's path is made absolute."""
    provider, model = split_name(spec.full_name(name), also)
    return f"{provider}/{absolute(model, spec.cwd) if provider == 'scripted' else model}"


def _usual_model(spec: SessionSpec, earlier: RunSettings | None, found: Settings) -> str:
    """The model if the specification names none; that of its provider, if it names one."""
    kept = earlier.models[:1] if earlier else ()
    named = [name for name in (*kept, found.model, spec.environ.get(_MODEL_VARIABLE)) if name]
    if spec.provider:
        also = found.entry_points.models
        provider = provider_named(spec.provider, also)
        usual = [model for _, model in _DEFAULT_MODELS]
        for name in (*named, *usual):
            if split_name(spec.full_name(name), also)[0] == provider:
                return name
        raise UnknownModel(f"--provider {provider} needs a model: give --model {provider}/MODEL")
    if named:
        return named[0]
    for variable, model in _DEFAULT_MODELS:
        if spec.environ.get(variable):
            return model
    raise NoCredentials(
        f"no model: give --model PROVIDER/MODEL, or set {_MODEL_VARIABLE}, ANTHROPIC_API_KEY, "
        "OPENAI_API_KEY or GEMINI_API_KEY"
    )
