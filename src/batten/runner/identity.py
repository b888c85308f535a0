"""The identity of a hosted runner, and the public part of it."""

from typing import Literal

from msgspec import Struct

from batten.contract.errors import NotFound


class Identity(Struct, frozen=True, kw_only=True):
    """What a runner is started with."""

    runner_session_id: str
    owner_instance_id: str | None = None
    """Tells apart the successive owners of a session; a control plane compares it."""
    workspace_root: str
    snapshot_root: str | None = None
    """The directory for manifests, relative to the workspace; None for the default."""
    workspace_id: str | None = None
    agent_run_id: str | None = None
    maestro_session_id: str | None = None
    """The session that it was started for, if any."""


class IdentityAnswer(Struct, frozen=True, kw_only=True):
    """The public answer: nothing about workspace, people, tokens or prompts."""

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
