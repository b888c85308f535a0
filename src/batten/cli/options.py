"""From flags to the settings of a run."""

import os
from argparse import Namespace
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from batten.agent.rules.rule import Rule, parse_rule
from batten.agent.rules.verdict import AUTO_ALLOW, MODES, Mode
from batten.agent.settings import RunSettings
from batten.cli.arguments import UsageError, named_tools
from batten.cli.home import absolute
from batten.contract.errors import CallerError, NoCredentials
from batten.models.registry import split_name
from batten.settings.contract import RuleConfig, Settings

_BYPASS_VARIABLE = "BATTEN_ALLOW_DANGEROUSLY_SKIP_PERMISSIONS"
_MODE_VARIABLE = "BATTEN_DEFAULT_PERMISSION_MODE"
_OWN = ("cli", "grant")
"""Rules that a session keeps; the others are read from their files each time."""
_DEFAULT_MODELS = (
    ("ANTHROPIC_API_KEY", "anthropic/claude-sonnet-4-6"),
    ("ANTHROPIC_AUTH_TOKEN", "anthropic/claude-sonnet-4-6"),
    ("OPENAI_API_KEY", "openai/gpt-5.5"),
    ("GEMINI_API_KEY", "google/gemini-2.5-flash"),
    ("GOOGLE_API_KEY", "google/gemini-2.5-flash"),
)


def run_settings(
    options: Namespace,
    environ: Mapping[str, str],
    earlier: RunSettings | None,
    found: Settings | None = None,
) -> RunSettings:
    """The settings asked for; where a flag is silent, those of the resumed session, and where
    there is none, those that were found in files.
    """
    found = found or Settings()
    changes: dict[str, Any] = {}
    if options.model or options.fallback_model or earlier is None:
        models = options.model or (earlier.models[:1] if earlier else ())
        models = models or [found.model or _default_model(environ)]
        names = (*models, *(options.fallback_model or found.fallback_models))
        changes["models"] = tuple(_full_name(name, options.provider) for name in names)
    flags = {
        "mode": options.permission_mode or _usual_mode(environ, found, earlier),
        "max_turns": options.max_turns,
        "max_seconds": options.max_seconds,
        "max_output_tokens": options.max_output_tokens,
        "temperature": options.temperature,
        "thinking_tokens": options.thinking_tokens,
        "system": _system(options),
        "append_system": _appended(options),
        "fail_on": options.fail_on,
        "request_seconds": options.request_seconds,
    }
    changes |= {name: value for name, value in flags.items() if value is not None}
    if options.no_permissions:
        changes["mode"] = "disabled"
    changes["rules"] = _rules(options, earlier, found)
    if options.max_budget_usd is not None:
        changes["budget_micros_usd"] = round(options.max_budget_usd * 1_000_000)
    if options.json_schema is not None:
        changes["output_schema"] = _schema(options.json_schema)
    tools = named_tools(options)
    if tools is not None:
        changes["tools"] = tools
    if options.no_instructions or options.bare:
        changes["instructions"] = False
    # Who is there to answer is said anew each time: another invocation may have had a client.
    changes["resolvers"] = ("operator",) if options.ask_operator else ()
    if earlier is None:
        settings = RunSettings(**changes)
    else:
        settings = msgspec.structs.replace(earlier, **changes)
    if settings.mode in ("bypassPermissions", "disabled") and not found.may_bypass:
        raise CallerError(
            f"the permission mode {settings.mode} is forbidden by the settings of this machine",
            code="config",
        )
    if settings.mode == "bypassPermissions" and not _may_bypass(options, environ):
        raise UsageError(
            "the permission mode bypassPermissions runs even what is denied; to use it, give "
            f"--allow-dangerously-skip-permissions too, or set {_BYPASS_VARIABLE}=1"
        )
    return settings


def _rules(options: Namespace, earlier: RunSettings | None, found: Settings) -> tuple[Rule, ...]:
    """Those of the flags, or else of the resumed session, and those found in files now."""
    given = tuple(options.rules or ())
    if not given and earlier is not None:
        given = tuple(rule for rule in earlier.rules if rule.source in _OWN)
    files = tuple(map(_from_file, found.rules))
    everything = (Rule("allow", "*", AUTO_ALLOW),) if options.auto_allow else ()
    return (*given, *files, *everything)


def _from_file(rule: RuleConfig) -> Rule:
    try:
        return parse_rule(rule.action, rule.pattern, rule.scope)
    except CallerError as error:
        raise CallerError(f"the {rule.scope} settings: {error}", code="config") from error


def _usual_mode(
    environ: Mapping[str, str], found: Settings, earlier: RunSettings | None
) -> Mode | None:
    """The mode where no flag names one. That nothing is held against rules is said each time."""
    if earlier is not None and earlier.mode != "disabled":
        return earlier.mode
    given = environ.get(_MODE_VARIABLE) or found.permission_mode
    if given is None:
        return None if earlier is None else "default"
    if given in MODES:
        return given
    raise CallerError(
        f"the permission mode {given!r} of {_MODE_VARIABLE} or the settings is not one of "
        f"{', '.join(MODES)}",
        code="config",
    )


def _may_bypass(options: Namespace, environ: Mapping[str, str]) -> bool:
    """Said anew for each invocation: a resumed session does not bring it along."""
    said = environ.get(_BYPASS_VARIABLE) == "1"
    return said or bool(options.allow_dangerously_skip_permissions)


def workspace_of(options: Namespace, earlier: str | None) -> str:
    """The directory to work in, resolved; it must exist."""
    path = os.path.realpath(absolute(options.workspace or earlier or "."))
    if not os.path.isdir(path):
        raise UsageError(f"--workspace {path} is not a directory")
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the name of the workspace {path!r} is not UTF-8 text") from error
    return path


def _json_or_file(text: str, what: str) -> Any:
    """A JSON value given in place, or in a file."""
    if text.lstrip()[:1] in ("{", "["):
        source, data = what, text.encode()
    else:
        source = text
        try:
            with open(text, "rb") as file:
                data = file.read()
        except OSError as error:
            raise CallerError(f"{what}: cannot read {text}: {error.strerror}") from error
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UsageError(f"{source} is not JSON: {error}") from error


def json_object(text: str, what: str) -> dict[str, Any]:
    given = _json_or_file(text, what)
    if not isinstance(given, dict):
        raise UsageError(f"{what} must be a JSON object")
    return cast("dict[str, Any]", given)


def _schema(text: str) -> dict[str, Any]:
    schema = json_object(text, "--json-schema")
    from batten.tools.schema import validator_for

    try:
        validator_for(schema)
    except ValueError as error:
        raise UsageError(f"--json-schema is not a JSON Schema: {error}") from error
    return schema


def _system(options: Namespace) -> str | None:
    if options.system_file is not None:
        return _text_of(options.system_file, "--system-file")
    system: str | None = "" if options.no_system else options.system
    return system


def _appended(options: Namespace) -> str | None:
    if options.append_system_prompt_file is not None:
        return _text_of(options.append_system_prompt_file, "--append-system-prompt-file")
    appended: str | None = options.append_system_prompt
    return appended


def _text_of(path: str, what: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"{what}: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{what}: {path} is not UTF-8 text: {error}") from error


def _full_name(name: str, provider: str | None = None) -> str:
    """`provider/model`, however short it was given; a script is named by its whole path."""
    if provider is not None and "/" not in name:
        name = f"{provider}/{name}"
    provider, model = split_name(name)
    return f"{provider}/{absolute(model) if provider == 'scripted' else model}"


def _default_model(environ: Mapping[str, str]) -> str:
    if environ.get("BATTEN_MODEL"):
        return environ["BATTEN_MODEL"]
    for variable, model in _DEFAULT_MODELS:
        if environ.get(variable):
            return model
    raise NoCredentials(
        "no model: give --model PROVIDER/MODEL, or set BATTEN_MODEL, ANTHROPIC_API_KEY, "
        "OPENAI_API_KEY or GEMINI_API_KEY"
    )
