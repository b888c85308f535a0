"""The specification of a task's session, from what its client asked for."""

from typing import Any, Literal

from msgspec import UNSET
from msgspec.structs import replace

from batten.agent.rules.rule import Rule
from batten.contract.facts.task import TaskCreated, TaskServer
from batten.journal.contract import RunRow, SessionRow
from batten.session.worker import parking
from batten.wiring.spec import SessionSpec

SURFACE = "hecate"
"""The surface of sessions that the service made."""
OPERATOR = "operator"
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


def of_task(base: SessionSpec, task: TaskCreated, grants: tuple[Rule, ...] = ()) -> SessionSpec:
    """The base of a task's session: what its client asked for, over what the service allows.

    `grants` are the rules that answers have stored for the session.
    """
    servers = {} if task.mcp_servers is UNSET else dict(map(_server, task.mcp_servers))
    model = "" if task.requested_model is UNSET else task.requested_model
    roots = () if task.sandbox_allowed_root is UNSET else (task.sandbox_allowed_root,)
    return replace(
        base,
        inherit=False,
        models=(model,) if model else base.models,
        provider=base.provider if task.requested_provider is UNSET else task.requested_provider,
        append_system=_joined(base.append_system, task.system_prompt),
        budget_micros_usd=None if task.budget_micros_usd is UNSET else task.budget_micros_usd,
        budget_covers_past=True,
        rules=(*base.rules, *_server_rules(task), *grants),
        network=task.sandbox_network,
        add_dirs=(*base.add_dirs, *roots),
        mcp_servers={**base.mcp_servers, **servers},
    )


def _server(server: TaskServer) -> tuple[str, dict[str, Any]]:
    """An entry of `mcpServers`."""
    entry = {
        "command": server.command,
        "args": server.args,
        "env": server.env,
        "url": server.url,
        "headers": server.headers,
    }
    return server.name, {name: value for name, value in entry.items() if value is not UNSET}


_ACTIONS: dict[str, Literal["ask", "deny"]] = {"require_approval": "ask", "block": "deny"}


def _server_rules(task: TaskCreated) -> list[Rule]:
    """The rules that a task sets for its tool servers."""
    servers = [] if task.mcp_servers is UNSET else task.mcp_servers
    return [
        Rule(_ACTIONS[server.approval_policy], f"mcp__{server.name}", "task")
        for server in servers
        if server.approval_policy in _ACTIONS
    ]


def _joined(first: str | None, then: object) -> str | None:
    parts = [part for part in (first, then) if isinstance(part, str) and part]
    return "\n\n".join(parts) or None
