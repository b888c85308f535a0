"""Which hosted runner this is, and what of it anybody may know."""

from typing import Literal

from msgspec import Struct

from batten.contract.errors import NotFound


class Identity(Struct, frozen=True, kw_only=True):
    """What a runner is told when it starts, and keeps."""

    runner_session_id: str
    owner_instance_id: str | None = None
    """Which of several that had this session in turn; a control plane compares it."""
    workspace_root: str
    snapshot_root: str | None = None
    """Where manifests go; relative to the workspace. None for the usual place in it."""
    workspace_id: str | None = None
    agent_run_id: str | None = None
    maestro_session_id: str | None = None
    """The session it was started for, if that was said."""


class IdentityAnswer(Struct, frozen=True, kw_only=True):
    """All that is said to whoever asks: nothing of workspace, people, tokens or prompts."""

    protocol_version: Literal["evalops.remote-runner.identity.v1"] = (
        "evalops.remote-runner.identity.v1"
    )
    runner_session_id: str
    owner_instance_id: str
    ready: bool
    draining: bool


def answer(runner: Identity, *, ready: bool, draining: bool) -> IdentityAnswer:
    if not runner.runner_session_id or not runner.owner_instance_id:
        raise NotFound("hosted runner identity unavailable", code="not_found")
    return IdentityAnswer(
        runner_session_id=runner.runner_session_id,
        owner_instance_id=runner.owner_instance_id,
        ready=ready,
        draining=draining,
    )
