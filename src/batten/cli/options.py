"""Turns flags into the specification of a session."""

from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from batten.cli import current_directory
from batten.cli.arguments import named_tools
from batten.cli.parsing import UsageError
from batten.contract.errors import CallerError
from batten.serve.output import warn
from batten.settings.regular import read_regular
from batten.wiring.spec import Part, SessionSpec

if TYPE_CHECKING:
    from batten.agent.deps import Panels, RunDeps
    from batten.agent.settings import RunSettings
    from batten.settings.contract import Settings

_PARTS: tuple[Part, ...] = ("hooks", "skills", "mcp", "plugins")
_LARGEST_INPUT = 16 * 1024 * 1024


def spec_of(options: Namespace, environ: Mapping[str, str]) -> SessionSpec:
    """The specification for the flags of `batten -p`."""
    return msgspec.structs.replace(
        headless_spec(options, environ),
        output_schema=None if options.json_schema is None else _schema(options.json_schema),
        fail_on=options.fail_on,
        resume_newest=options.continue_,
        session_id=options.session_id,
        fork=options.fork_session,
        branch=options.branch,
        worktree=options.worktree,
        notes=options.include_partial_messages,
        observe_hooks=options.include_hook_events,
    )


def headless_spec(options: Namespace, environ: Mapping[str, str]) -> SessionSpec:
    """The specification for the flags of `batten headless`."""
    return SessionSpec(
        environ=environ,
        cwd=current_directory(),
        warn=warn,
        resume=options.resume,
        save=not options.no_save,
        record=options.record,
        workspace=options.workspace,
        add_dirs=tuple(options.add_dir),
        models=tuple(options.model or ()),
        fallback_models=tuple(options.fallback_model),
        provider=options.provider,
        mode="disabled" if options.no_permissions else options.permission_mode,
        may_bypass=options.allow_dangerously_skip_permissions,
        rules=tuple(options.rules or ()),
        auto_allow=options.auto_allow,
        auto_apply=False if options.review else None,
        resolvers=("operator",) if options.ask_operator else (),
        convene=_convene,
        max_turns=options.max_turns,
        max_seconds=options.max_seconds,
        max_retries=options.max_retries,
        max_output_tokens=options.max_output_tokens,
        budget_micros_usd=_micros(options.max_budget_usd),
        require_price=options.require_price or None,
        request_seconds=options.request_seconds,
        temperature=options.temperature,
        thinking_tokens=options.thinking_tokens,
        record_thinking=options.record_thinking or None,
        system=_system(options),
        append_system=appended_system(options),
        tools=named_tools(options),
        child_runs=not options.no_sub_agent,
        sandbox=options.sandbox,
        network=options.sandbox_network == "allow",
        bare=options.bare,
        instructions=not options.no_instructions,
        settings=options.settings,
        setting_sources=_sources(options.setting_sources),
        without=frozenset(part for part in _PARTS if getattr(options, f"no_{part}")),
        mcp_servers=_servers(options.mcp_config),
        plugin_dirs=tuple(options.plugin_dir),
        trust_workspace=options.trust_workspace,
    )


def _convene(
    spec: SessionSpec, deps: "RunDeps", settings: "RunSettings", found: "Settings"
) -> "Panels":
    """The panels of the settings; loaded only where a rule names one."""
    from batten.control.coordination.approvals import panels_of

    return panels_of(spec, deps, settings, found)


def _micros(dollars: float | None) -> int | None:
    return None if dollars is None else round(dollars * 1_000_000)


def _sources(names: str | None) -> tuple[str, ...] | None:
    if names is None:
        return None
    return tuple(name.strip() for name in names.split(",") if name.strip())


def _servers(configs: list[str]) -> dict[str, Any]:
    servers: dict[str, Any] = {}
    for text in configs:
        config = json_object(text, "--mcp-config")
        named = config.get("mcpServers", config)
        if not isinstance(named, dict):
            raise UsageError('--mcp-config: write {"mcpServers": {name: {...}}}')
        servers |= named
    return servers


def _json_or_file(text: str, what: str) -> Any:
    """A JSON value, inline or from a file."""
    if text.lstrip()[:1] in ("{", "["):
        source, data = what, text.encode()
    else:
        source = text
        try:
            data = _bytes_of(text, what)
        except OSError as error:
            raise CallerError(f"{what}: cannot read {text}: {error.strerror}") from error
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UsageError(f"{source} is not JSON: {error}") from error


def json_object(text: str, what: str) -> dict[str, Any]:
    value = _json_or_file(text, what)
    if not isinstance(value, dict):
        raise UsageError(f"{what} must be a JSON object")
    return cast("dict[str, Any]", value)


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


def appended_system(options: Namespace) -> str | None:
    """The text of the flags that add to the system prompt."""
    if options.append_system_prompt_file is not None:
        return _text_of(options.append_system_prompt_file, "--append-system-prompt-file")
    appended: str | None = options.append_system_prompt
    return appended


def _bytes_of(path: str, what: str) -> bytes:
    data = read_regular(path, _LARGEST_INPUT + 1, pipes=True)
    if len(data) > _LARGEST_INPUT:
        raise UsageError(f"{what}: {path} has more than {_LARGEST_INPUT} bytes")
    return data


def _text_of(path: str, what: str) -> str:
    try:
        return _bytes_of(path, what).decode()
    except OSError as error:
        raise UsageError(f"{what}: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{what}: {path} is not UTF-8 text: {error}") from error
