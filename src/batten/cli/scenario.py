"""`batten scenario`: validates a scripted scenario, or runs it and evaluates the run."""

import asyncio
import os
from argparse import Namespace

from batten.cli import current_directory
from batten.contract.facts import AssistantToolCallProposed
from batten.models.scenario import Scenario, load
from batten.models.scenario_report import Observation, ObservedCall, evaluate, to_json, to_junit
from batten.serve.output import put, warn
from batten.session.history import facts_of
from batten.tools.aliases import aliases
from batten.wiring.home import absolute
from batten.wiring.opener import SessionOpener
from batten.wiring.spec import SessionSpec


def run_scenario(options: Namespace) -> int:
    scenario = load(options.path)
    if options.action == "validate":
        print(f"{options.path}: {scenario.id}: {len(scenario.frames)} frames, valid")
        return 0
    path = absolute(options.path, current_directory())
    root = os.path.realpath(options.workspace or os.path.dirname(path))
    observed = asyncio.run(_observe(scenario, path, root))
    result = evaluate(scenario, observed, root, aliases=aliases())
    if options.junit:
        put(to_junit(result).removesuffix("\n"))
    elif options.json:
        put(to_json(result).decode())
    else:
        for assertion in result.assertions:
            put(f"{assertion.status:<5} {assertion.id}: {assertion.message}")
        print(f"{result.scenario.id}: {result.scenario.observed_outcome}")
    return result.exit_code


async def _observe(scenario: Scenario, path: str, root: str) -> Observation:
    """Run the scenario in its workspace, with all calls allowed, and read its tool calls back."""
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
            execution = await opened.session.prompt(scenario.description or scenario.id)
            ended = await execution.finish()
            calls = [
                ObservedCall(fact.tool_call_id, fact.tool_name)
                async for fact in facts_of(opener.journal, ended.run_id)
                if isinstance(fact, AssistantToolCallProposed)
            ]
            await opened.session.close()
        finally:
            await opened.close()
    finally:
        opener.close()
    return Observation(
        calls=tuple(calls),
        audit_events=tuple(scenario.metadata.audit_events or ()),
        outcome="pass" if ended.outcome == "completed" else "fail",
    )
