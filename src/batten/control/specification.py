"""The specification of a task's session, from what its client asked for."""

import os
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Literal, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from batten.agent.deps import RunDeps
from batten.agent.rules.rule import Rule
from batten.agent.settings import RunSettings
from batten.contract.facts.task import TaskCreated
from batten.control.kinds import call_of, only
from batten.control.permitted import in_mode, rules_of
from batten.control.permitted import resolved as resolved_server
from batten.control.workspaces import worktree_of
from batten.journal.contract import RunRow, SessionRow
from batten.journal.recorder import Recorder
from batten.protocols.hecate.creation import source_of
from batten.session.worker import parking
from batten.wiring.spec import SessionSpec

T = TypeVar("T", int, float)

SURFACE = "hecate"
"""The surface of sessions that the service made."""
OPERATOR = "operator"
_CODING = (
    "You work on the code of this repository. Read what you change and its tests first, and keep to"
    " the conventions that you find. Make the smallest change that does what is asked, run the"
    " tests that it concerns, and say which you ran and how they ended."
)
"""Added to the system prompt by the profile `coding_agent`."""
ANSWER_WITHIN_S = 30 * 24 * 3600.0
"""How long a parked run waits for its answer, unless the service says otherwise."""


def resumed(base: SessionSpec, row: RunRow, session: SessionRow) -> SessionSpec:
    """The specification to execute a queued run of any session with."""
    return replace(
        base,
        resume=session.session_id,
        workspace=row.workspace_path,
        resolvers=(OPERATOR,),
        request_seconds=base.request_seconds or ANSWER_WITHIN_S,
        equip=parking,
    )


def executed(
    base: SessionSpec,
    task: TaskCreated,
    row: RunRow,
    session: SessionRow,
    grants: tuple[Rule, ...] = (),
) -> SessionSpec:
    """The specification to execute a queued run of a task with."""
    call = call_of(task, row.run_id)

    def equip(deps: RunDeps, settings: RunSettings) -> RunDeps:
        deps = parking(deps, settings)
        deps = replace(deps, workspace_mode=row.workspace_mode, stops_at_budget=True)
        if row.workspace_mode != "in_place":
            deps = replace(deps, before_end=_summarize(deps.workspace_path, base.environ))
        return deps if call is None else only(call)(deps, settings)

    spec = replace(resumed(of_task(base, task, grants), row, session), equip=equip)
    left = _time_left_s(task, row)
    spec = replace(
        spec,
        max_seconds=least(spec.max_seconds, left),
        request_seconds=least(spec.request_seconds, left),
    )
    if row.workspace_mode != "worktree":
        return spec
    return replace(
        spec,
        workspace=source_of(task),
        worktree=worktree_of(row),
        worktree_base=task.base_branch or "",
    )


def of_task(base: SessionSpec, task: TaskCreated, grants: tuple[Rule, ...] = ()) -> SessionSpec:
    """The base of a task's session: what its client asked for, over what the service allows.

    `grants` are the rules that answers have stored for the session.
    """
    named = [] if task.mcp_servers is UNSET else task.mcp_servers
    servers = tuple(resolved_server(server, base.environ) for server in named)
    base = in_mode(base, task)
    root = task.sandbox_allowed_root
    roots = () if root is UNSET else (os.path.realpath(root),)
    return replace(
        base,
        inherit=False,
        needs_model=task.execution_kind == "agent_loop",
        models=asked_models(base, task),
        provider=base.provider if task.requested_provider is UNSET else task.requested_provider,
        append_system=_joined(
            base.append_system,
            _CODING if task.execution_profile == "coding_agent" else "",
            task.system_prompt,
        ),
        budget_micros_usd=least(base.budget_micros_usd, task.budget_micros_usd),
        budget_covers_past=True,
        max_turns=least(base.max_turns, task.max_turns),
        request_seconds=least(base.request_seconds, task.approval_timeout_s),
        rules=(*base.rules, *_server_rules(task), *rules_of(task), *grants),
        network=task.sandbox_network and base.network,
        auto_apply=task.auto_apply and base.auto_apply is not False,
        read_only=task.sandbox_read_only,
        command_seconds=None if task.timeout_ms is UNSET else task.timeout_ms / 1000,
        add_dirs=roots or base.add_dirs,
        confined_servers=servers,
    )


def _time_left_s(task: TaskCreated, row: RunRow) -> float | UnsetType:
    """Until the run's lifetime has passed; a question that waits so long is denied by then."""
    if task.lifetime_ms is UNSET:
        return UNSET
    age = datetime.now(UTC) - datetime.fromisoformat(row.created_at)
    return max(0.001, round(task.lifetime_ms / 1000 - age.total_seconds(), 3))


def _summarize(workspace: str, environ: Mapping[str, str]) -> Callable[[Recorder], Awaitable[None]]:
    async def summarize(recorder: Recorder) -> None:
        if os.path.lexists(os.path.join(workspace, ".git")):
            from batten.control.summary import keep_changes

            await keep_changes(recorder, workspace, environ)

    return summarize


def asked_models(base: SessionSpec, task: TaskCreated) -> tuple[str, ...]:
    """The models of a task's runs: the one it asks for, else those of the service.

    A provider's own names may have a slash: OpenRouter has `anthropic/claude-sonnet-4-5`.
    """
    name, provider = task.requested_model, task.requested_provider
    if not name:
        return base.models
    if provider and not name.startswith(f"{provider}/"):
        name = f"{provider}/{name}"
    return (name,)


def least(ours: T | None, theirs: T | UnsetType) -> T | None:
    """The lower of two limits, each of which may be missing."""
    if theirs is UNSET:
        return ours
    return theirs if ours is None else min(ours, theirs)


_ACTIONS: dict[str, Literal["ask", "deny"]] = {"require_approval": "ask", "block": "deny"}


def _server_rules(task: TaskCreated) -> list[Rule]:
    """The rules that a task sets for its tool servers."""
    servers = [] if task.mcp_servers is UNSET else task.mcp_servers
    return [
        Rule(
            _ACTIONS[server.approval_policy],
            f"mcp__{server.name}",
            "task",
            reason=f"approval_policy={server.approval_policy}",
        )
        for server in servers
        if server.approval_policy in _ACTIONS
    ]


def _joined(*parts: object) -> str | None:
    return "\n\n".join(part for part in parts if isinstance(part, str) and part) or None
