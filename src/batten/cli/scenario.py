"""`batten scenario`: check a scripted scenario, or run it for real and judge the run."""

import asyncio
import os
from argparse import Namespace

from batten.cli.arguments import parser
from batten.cli.home import absolute, batten_home
from batten.cli.options import run_settings
from batten.cli.wiring import Wiring
from batten.contract.facts import AssistantToolCallProposed
from batten.models.scenario import Scenario, load
from batten.models.scenario_report import Observation, ObservedCall, evaluate, to_json, to_junit
from batten.session.history import facts_of
from batten.session.session import Session
from batten.tools.aliases import aliases


def run_scenario(options: Namespace) -> int:
    scenario = load(options.path)
    if options.action == "validate":
        print(f"{options.path}: {scenario.id}: {len(scenario.frames)} frames, valid")
        return 0
    root = os.path.realpath(options.workspace or os.path.dirname(absolute(options.path)))
    observed = asyncio.run(_observe(scenario, absolute(options.path), root))
    result = evaluate(scenario, observed, root, aliases=aliases())
    if options.junit:
        print(to_junit(result), end="")
    elif options.json:
        print(to_json(result).decode())
    else:
        for assertion in result.assertions:
            print(f"{assertion.status:<5} {assertion.id}: {assertion.message}")
        print(f"{result.scenario.id}: {result.scenario.observed_outcome}")
    return result.exit_code


async def _observe(scenario: Scenario, path: str, root: str) -> Observation:
    """Run the scenario in its workspace, everything allowed, and read back what happened."""
    words = ["--model", f"scripted/{path}", "--permission-mode", "bypassPermissions"]
    words += ["--allow-dangerously-skip-permissions", "--no-instructions"]
    options = parser().parse_args(words)
    settings = run_settings(options, os.environ, None)
    async with Wiring(batten_home(os.environ), os.environ, options) as wiring:
        deps = await wiring.deps_for(root, settings)
        session = await Session.open(deps, settings, surface="scenario")
        execution = await session.prompt(scenario.description or scenario.id)
        ended = await execution.finish()
        calls = [
            ObservedCall(fact.tool_call_id, fact.tool_name)
            async for fact in facts_of(wiring.journal, ended.run_id)
            if isinstance(fact, AssistantToolCallProposed)
        ]
        await session.close()
    return Observation(
        calls=tuple(calls),
        audit_events=tuple(scenario.metadata.audit_events or ()),
        outcome="pass" if ended.outcome == "completed" else "fail",
    )
