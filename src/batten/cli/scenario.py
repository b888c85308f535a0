"""`batten scenario`: validates scripted scenarios, or runs them and evaluates the runs."""

import asyncio
import os
from argparse import Namespace
from contextlib import nullcontext
from typing import Any

import msgspec

from batten.agent.hooks.dispatch import ClientHook
from batten.cli import current_directory
from batten.cli.junit import open_report
from batten.contract.errors import BattenError, NotFound
from batten.contract.facts import AssistantToolCallProposed, ToolShellExited
from batten.contract.marks import one_line
from batten.contract.outcomes import exit_code
from batten.models.scenario import CallTool, Scenario, call_id, load
from batten.models.scenario_report import (
    Checked,
    Observation,
    ObservedCall,
    ScenarioResult,
    evaluate,
    to_json,
    to_junit,
)
from batten.serve.output import put, say, warn
from batten.session.history import facts_of
from batten.session.session import Session
from batten.tools.aliases import aliases
from batten.wiring.home import absolute
from batten.wiring.opener import SessionOpener
from batten.wiring.spec import SessionSpec

_WRONG = 1


def run_scenario(options: Namespace) -> int:
    """Check or run each file; a broken one does not keep the others from their turn."""
    results: list[ScenarioResult | Checked] = []
    codes: list[int] = []
    validates = options.action == "validate"
    with nullcontext() if options.junit is None else open_report(options.junit) as report:
        for path in options.paths:
            try:
                result = _validate(path, options) if validates else _run(path, options)
                codes.append(0 if isinstance(result, Checked) else result.exit_code)
            except BattenError as error:
                say(f"batten: {error}")
                if validates and options.json:
                    _put_json({"path": path, "valid": False, "error": str(error)})
                result = Checked(path, str(error))
                codes.append(exit_code("no_input") if isinstance(error, NotFound) else _WRONG)
            results.append(result)
        if report is not None:
            report.write(to_junit(results))
    return next(filter(None, codes), 0)


def _validate(path: str, options: Namespace) -> Checked:
    scenario = load(path)
    frames = len(scenario.frames)
    if options.json:
        _put_json({"path": path, "valid": True, "id": scenario.id, "frames": frames})
    else:
        put(f"{path}: {scenario.id}: {frames} frames, valid")
    return Checked(path)


def _put_json(fields: dict[str, Any]) -> None:
    put(msgspec.json.encode(fields).decode())


def _run(path: str, options: Namespace) -> ScenarioResult:
    scenario = load(path)
    path = absolute(path, current_directory())
    root = os.path.realpath(options.workspace or os.path.dirname(path))
    observed = asyncio.run(_observe(scenario, path, root))
    result = evaluate(scenario, observed, root, aliases=aliases())
    if options.json:
        put(to_json(result).decode())
    else:
        for assertion in result.assertions:
            put(f"{assertion.status:<5} {assertion.id}: {assertion.message}")
        put(f"{result.scenario.id}: {result.scenario.observed_outcome}")
    return result


async def _observe(scenario: Scenario, path: str, root: str) -> Observation:
    """Run the scenario in its workspace, with all calls allowed, and read its facts back."""
    opener = SessionOpener(
        SessionSpec(
            environ=dict(os.environ),
            cwd=current_directory(),
            surface="scenario",
            warn=warn,
            workspace=root,
            models=(f"scripted/{path}",),
            mode="bypassPermissions",
            may_bypass=True,
            instructions=False,
            setting_sources=(),
            without=frozenset(("hooks", "skills", "mcp", "plugins")),
            notes=False,
        ),
        own_process=True,
    )
    try:
        opened = await opener.open(opener.base)
        try:
            _deny_again(scenario, opened.session)
            observed = await _play(scenario, opened.session)
            await opened.session.close()
        finally:
            await opened.close()
    finally:
        opener.close()
    return observed


async def _play(scenario: Scenario, session: Session) -> Observation:
    """One run for each prompt."""
    calls: list[ObservedCall] = []
    exit_codes: dict[str, int] = {}
    outcome = ""
    for prompt in scenario.prompts or (scenario.description or scenario.id,):
        execution = await session.prompt(prompt)
        ended = await execution.finish()
        outcome = ended.outcome
        if outcome != "completed":
            say(f"batten: {scenario.id}: the run ended in {outcome}: {one_line(ended.message)}")
        async for fact in facts_of(session.deps.journal, ended.run_id):
            if isinstance(fact, AssistantToolCallProposed):
                calls.append(ObservedCall(fact.tool_call_id, fact.tool_name))
            elif isinstance(fact, ToolShellExited):
                exit_codes[fact.tool_call_id] = fact.exit_code
    return Observation(
        calls=tuple(calls),
        audit_events=scenario.metadata.audit_events,
        exit_codes=exit_codes,
        run_outcome=outcome,
    )


def _deny_again(scenario: Scenario, session: Session) -> None:
    """Deny the calls that were denied when the scenario was recorded: nobody wanted them to run."""
    denied = {
        call_id(scenario, frame.index, number)
        for frame in scenario.frames
        for number, statement in enumerate(frame.statements)
        if isinstance(statement, CallTool)
        and statement.result is not None
        and statement.result.ending == "denied"
    }
    if not denied:
        return

    async def judge(payload: dict[str, Any], called: str | None) -> object:
        if called not in denied:
            return {}
        return {"decision": "deny", "reason": "it was denied when the scenario was recorded"}

    session.deps.hooks.register(ClientHook(event="PreToolUse", callback_id="scenario", call=judge))
