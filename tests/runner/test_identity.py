"""Who a hosted runner is, how it is told, and what it says of itself."""

from pathlib import Path

import msgspec
import pytest

from batten.contract.errors import CallerError, NotFound, NotReady
from batten.runner.configuration import VARIABLES, resolved
from batten.runner.request import DrainRequest
from batten.runner.runner import Runner

from .given import AT, Playing, identity

FLAGS = {
    "runner-session-id": "mrs_1",
    "owner-instance-id": "pod_1",
    "snapshot-root": "kept",
    "workspace-id": "ws_1",
    "agent-run-id": "run_1",
    "maestro-session-id": "session_1",
}


def test_flags_say_who_it_is_and_links_to_the_workspace_are_followed(
    workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(workspace)
    given = resolved({**FLAGS, "workspace-root": str(tmp_path / "link")}, {})
    assert msgspec.to_builtins(given) == {
        "identity": {
            "runner_session_id": "mrs_1",
            "owner_instance_id": "pod_1",
            "workspace_root": str(workspace),
            "snapshot_root": "kept",
            "workspace_id": "ws_1",
            "agent_run_id": "run_1",
            "maestro_session_id": "session_1",
        },
        "restore_manifest": None,
    }


@pytest.mark.parametrize("name", VARIABLES)
def test_every_variable_is_read_and_the_first_that_is_not_blank_counts(
    name: str, workspace: Path
) -> None:
    usual = {"MAESTRO_RUNNER_SESSION_ID": "mrs_0", "MAESTRO_WORKSPACE_ROOT": str(workspace)}
    value = str(workspace) if name == "workspace-root" else "this"
    for number, variable in enumerate(VARIABLES[name]):
        environ = {key: held for key, held in usual.items() if key not in VARIABLES[name]}
        environ |= dict.fromkeys(VARIABLES[name][:number], "  ")
        environ |= {variable: f" {value} "} | dict.fromkeys(VARIABLES[name][number + 1 :], "/no")
        given = resolved({}, environ)
        field = name.replace("-", "_")
        holder = given if field == "restore_manifest" else given.identity
        assert getattr(holder, field) == value


def test_a_flag_goes_before_the_environment(workspace: Path) -> None:
    environ = {"MAESTRO_REMOTE_RUNNER_OWNER_INSTANCE_ID": "pod_env"}
    given = resolved({**FLAGS, "workspace-root": str(workspace)}, environ)
    assert given.identity.owner_instance_id == "pod_1"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"workspace-root": "."}, "MAESTRO_RUNNER_SESSION_ID"),
        ({"runner-session-id": "mrs_1"}, "MAESTRO_WORKSPACE_ROOT"),
        ({"runner-session-id": " ", "workspace-root": "."}, "--runner-session-id"),
        ({"runner-session-id": "mrs_1", "workspace-root": "/nowhere"}, "/nowhere"),
        ({"restore-manifest": "m.json"}, "There is no flag --restore-manifest"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(flags: dict[str, str], said: str) -> None:
    with pytest.raises(CallerError, match=said) as refused:
        resolved(flags, {})
    assert refused.value.code == "invalid_config"


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
