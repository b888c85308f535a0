"""Checks of what is reached over a network: model providers and MCP servers."""

import asyncio
from collections.abc import Mapping
from typing import Any

from batten.cli.checks import Finding, Status, Surroundings
from batten.cli.checks.machine import seconds_ahead
from batten.cli.models import key_state, usual_models
from batten.contract.errors import BattenError, CallerError
from batten.models.pricing import price
from batten.models.probing import Probe, check_configured, probe
from batten.models.registry import PLACES, ProviderPlace, has_place
from batten.redact.configured import configured_values
from batten.redact.redactor import Redactor
from batten.tools.mcp_config import DEFAULT_TIMEOUT_S

_LONGEST_S = 30.0
"""A tool server may take longer to start than a provider to answer, but not for ever."""
_REFUSED = (401, 403)


async def check_providers(around: Surroundings) -> list[Finding]:
    """The model of a run, then each provider that is set up, all asked at once."""
    findings, needed = _usual_model(around)
    chosen = [
        place
        for name, place in PLACES.items()
        if name == needed or (has_place(name, around.environ) and name != "openai-chat")
    ]
    asked = (_provider(place, around, is_needed=place.provider == needed) for place in chosen)
    return [*findings, *await asyncio.gather(*asked)]


def _usual_model(around: Surroundings) -> tuple[list[Finding], str]:
    """The models of a run without flags, and the provider of the first."""
    try:
        names = usual_models(around.environ, around.workspace)
    except CallerError as error:
        return [Finding("model", "problem", str(error), "`batten models` shows what is set")], ""
    findings: list[Finding] = []
    for name in names:
        provider, _, model = name.partition("/")
        place = PLACES.get(provider)
        priced = place is None or price(provider, model, around.environ) is not None
        status: Status = "ok" if priced or provider == "ollama" else "warning"
        message = name if status == "ok" else f"{name} has no known price: its cost is not counted"
        remedy = "" if status == "ok" else "name its price in a file, and set BATTEN_PRICES to it"
        findings.append(Finding("model", status, message, remedy))
    return findings, names[0].partition("/")[0]


async def _provider(place: ProviderPlace, around: Surroundings, *, is_needed: bool) -> Finding:
    """A failing provider is a problem if the usual model is its own."""
    failing: Status = "problem" if is_needed else "warning"
    state = f"{place.provider}: {key_state(place, around.environ)}"
    try:
        if around.offline:
            check_configured(place.provider, around.environ)
            return Finding("provider", "ok", f"{state}; not asked")
        async with asyncio.timeout(2 * around.timeout_s):
            answer = await probe(place.provider, around.environ, around.timeout_s)
    except TimeoutError:
        return Finding("provider", failing, f"{state}; no answer within {around.timeout_s:g} s")
    except BattenError as error:
        return Finding("provider", failing, f"{place.provider}: {error}")
    return _judged(answer, state, failing)


def _judged(answer: Probe, state: str, failing: Status) -> Finding:
    ahead = seconds_ahead(answer.date)
    message = f"{state}; {answer.address} answered {answer.status} in {answer.duration_ms} ms"
    if answer.status in _REFUSED:
        remedy = "it does not accept the key: check it for typing errors and whether it is revoked"
        return Finding("provider", failing, message, remedy, ahead)
    if answer.status >= 500 or answer.status == 429:
        return Finding("provider", "warning", message, "the provider has trouble; try later", ahead)
    return Finding("provider", "ok", message, clock_s=ahead)


async def check_tool_servers(around: Surroundings) -> list[Finding]:
    """Start or reach each MCP server that a run in this workspace would use."""
    servers = around.settings.mcp_servers
    if not servers:
        return [Finding("mcp", "ok", "no MCP server is configured")]
    if around.offline:
        from batten.tools.mcp_config import read_config

        read_config({"mcpServers": servers}, around.environ, cwd=around.workspace)
        return [Finding("mcp", "ok", f"{', '.join(servers)}: not started")]
    from batten.tools.mcp import McpServers

    entries = {name: _bounded(entry) for name, entry in servers.items()}
    redactor = Redactor.from_environment(around.environ, configured_values(servers.values()))
    opened = await McpServers.connect(
        {"mcpServers": entries}, around.environ, cwd=around.workspace, redact=redactor.text
    )
    try:
        states = opened.states()
    finally:
        await opened.close()
    return [_tool_server(state, servers[state["name"]]) for state in states]


def _bounded(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry with a bounded wait; a required server is a finding here, no error."""
    patience = entry.get("timeout", DEFAULT_TIMEOUT_S)
    if isinstance(patience, int | float):
        patience = min(patience, _LONGEST_S)
    return {**entry, "required": False, "timeout": patience}


def _tool_server(state: dict[str, Any], entry: Mapping[str, Any]) -> Finding:
    name = f"{state['name']} ({state['transport']})"
    if state["status"] == "connected":
        return Finding("mcp", "ok", f"{name}: {state['tools']} tools")
    failing: Status = "problem" if entry.get("required") else "warning"
    return Finding("mcp", failing, f"{name}: {state['error']}")
