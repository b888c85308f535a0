"""Who a hosted runner is, and what it says of itself."""

from pathlib import Path

import msgspec
import pytest

from batten.contract.errors import NotFound, NotReady
from batten.runner.request import DrainRequest
from batten.runner.runner import Runner

from .given import AT, Playing, identity


def test_a_runner_that_is_ready_says_who_it_is_and_nothing_else(workspace: Path) -> None:
    assert msgspec.to_builtins(Runner(identity(workspace)).answer()) == {
        "protocol_version": "evalops.remote-runner.identity.v1",
        "runner_session_id": "mrs_123",
        "owner_instance_id": "pod_123",
        "ready": True,
        "draining": False,
    }


async def test_a_drained_runner_is_not_ready_and_stays_so(workspace: Path) -> None:
    runner = Runner(identity(workspace), now=lambda: AT)
    runner.check_ready()
    await runner.drain(DrainRequest(), Playing())
    assert (runner.answer().ready, runner.answer().draining) == (False, True)
    with pytest.raises(NotReady, match="draining") as refused:
        runner.check_ready()
    assert refused.value.code == "runtime_not_ready"


@pytest.mark.parametrize("missing", [{"owner_instance_id": None}, {"runner_session_id": ""}])
def test_without_its_ids_a_runner_has_no_identity(workspace: Path, missing: dict[str, str]) -> None:
    with pytest.raises(NotFound, match="hosted runner identity unavailable"):
        Runner(identity(workspace, **missing)).answer()


def test_a_missing_workspace_makes_it_not_ready_and_changes_no_id(workspace: Path) -> None:
    runner = Runner(identity(workspace))
    before = runner.answer()
    workspace.rename(workspace.with_name("elsewhere"))
    assert runner.answer() == msgspec.structs.replace(before, ready=False)
    workspace.write_text("no directory")
    assert not runner.answer().ready
