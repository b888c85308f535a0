"""The task of a descriptor whose runtime is Batten's own agent."""

from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from batten.contract.errors import CallerError
from batten.contract.facts import TaskCreated
from batten.contract.ids import new_run_id, new_task_id
from batten.contract.leniency import read_leniently
from batten.control.permitted import check_task
from batten.control.tasks import Tasks
from batten.protocols.hecate.creation import new_task
from batten.protocols.hecate.tasks import CreateTask
from batten.protocols.hecate.vocabulary import Priority
from batten.protocols.macp.descriptor import RunDescriptor, is_uuid


class AgentOrder(Struct, frozen=True, kw_only=True, rename="camel"):
    """What `session.metadata` may say to an agent; other members are kept and not read."""

    prompt: str
    system_prompt: str = ""
    model: str = ""
    provider: str = ""
    working_directory: str = ""
    workspace_mode: Literal["", "clone", "worktree", "in_place"] = ""
    base_branch: str = ""
    max_turns: int = 0
    budget_micros_usd: int = 0
    permission_mode: str = ""
    priority: Priority | Literal[""] = ""
    allow: list[str] = []
    deny: list[str] = []
    context: dict[str, object] | UnsetType = UNSET
    """Told to the agent after the prompt, as JSON."""


_order = msgspec.json.Decoder(AgentOrder)
_RENAMED = {"model": "requested_model", "provider": "requested_provider"}


def task_of(descriptor: RunDescriptor, *, by: str) -> TaskCreated:
    """Raises `CallerError` with what is missing or wrong in the metadata."""
    given = descriptor.session.session_id
    if given is not UNSET and not is_uuid(given):
        raise CallerError(
            "session.sessionId of an agent's run must be a UUID v4/v7, or left out",
            code="INVALID_SESSION_ID",
        )
    try:
        order = read_leniently(msgspec.json.encode(descriptor.metadata), _order.decode)
        named = msgspec.structs.asdict(order)
        context = named.pop("context")
        if context is not UNSET:
            named["prompt"] += f"\n\nContext:\n{msgspec.json.encode(context).decode()}"
        request = msgspec.convert(
            {_RENAMED.get(name, name): value for name, value in named.items()}, CreateTask
        )
        return replace(new_task(request, by=by), lifetime_ms=descriptor.session.ttl_ms)
    except (msgspec.ValidationError, CallerError) as error:
        raise wrong(error) from error


def check_order(tasks: Tasks, task: TaskCreated) -> None:
    """Raises what creating the task and queueing its run would raise."""
    task_id = new_task_id()
    try:
        check_task(task, tasks.base, tasks.models.mode)
        tasks.workspaces.path_for(task, task_id, new_run_id())
        tasks.models.of(tasks.workspaces.home_of(task, task_id), task)
    except CallerError as error:
        raise wrong(error) from error


def wrong(error: Exception) -> CallerError:
    """What the metadata says cannot be done."""
    return CallerError(f"session.metadata: {error}", code="VALIDATION_ERROR")
