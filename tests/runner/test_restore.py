"""Going on from a manifest: its own, an older one, somebody else's, and what is none at all."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from batten.contract.errors import CallerError, NotFound, NotReady
from batten.protocols.maestro import outgoing as heard
from batten.protocols.maestro.snapshot import Edge
from batten.runner import restore
from batten.runner.request import DrainRequest
from batten.runner.restore import load
from batten.runner.runner import Runner
from tests.maestro.schemas import PRESENT, PUBLISHED, Published

from .given import INIT, SESSION, Json, Playing, asked, called, drain, identity, started, wire

INFO: Json = {
    "connection_id": "conn_1",
    "role": "controller",
    "connection_count": 2,
    "controller_connection_id": "conn_1",
    "connections": (
        heard.ConnectionState(
            connection_id="conn_1",
            role="controller",
            subscription_count=1,
            attached_subscription_count=1,
            controller_lease_granted=True,
        ),
    ),
}
COMMAND = heard.CommandStarted(
    command_id="cmd_1", command="sleep 9", shell_mode="direct", terminal_mode="pipe"
)
WATCH = heard.WatchStarted(watch_id="w_1", root_dir=".", debounce_ms=0)


def written(workspace: Path, value: object, name: str = "manifest.json") -> str:
    (workspace / name).write_bytes(msgspec.json.encode(value))
    return name


def foreign(**changes: Any) -> Json:
    """The least that another make of runner leaves behind."""
    manifest: Json = {
        "protocol_version": "evalops.remote-runner.snapshot-manifest.v1",
        "runner_session_id": "mrs_old",
        "maestro_session_id": "sess_old",
        "created_at": "2026-04-01T00:00:00.000Z",
        "workspace_root": "/somewhere/else",
        "runtime": {"flush_status": "completed", "session_id": "sess_old", "cursor": 7},
        "workspace_export": {
            "mode": "local_path_contract",
            "paths": [
                {
                    "input": ".",
                    "path": "/somewhere/else",
                    "relative_path": ".",
                    "type": "directory",
                }
            ],
        },
        "snapshot": {
            "protocolVersion": "2026-04-02",
            "session_id": "sess_old",
            "cursor": 7,
            "last_init": None,
            "state": {"is_ready": True, "is_responding": True, "model": "m", "cwd": "/old"},
        },
    }
    return {**manifest, **changes}


def refused(path: str, workspace: Path) -> CallerError:
    with pytest.raises(CallerError) as error:
        load(path, str(workspace))
    assert error.value.code == "invalid_snapshot_manifest"
    assert path in str(error.value)
    return error.value


async def left_by(runtime: Playing | None, workspace: Path, **more: Any) -> str:
    drained = await drain(DrainRequest(), identity(workspace, **more), runtime)
    return drained.manifest_path


async def test_what_was_drained_is_gone_on_from(workspace: Path) -> None:
    runtime = Playing(
        heard.ConnectionInfo(**INFO),
        asked("c1"),
        called("c2", "bash"),
        started("c2"),
        COMMAND,
        WATCH,
        heard.Error(message="earlier", fatal=False, error_type="tool"),
    )
    before = runtime.conversation.state
    restored = load(await left_by(runtime, workspace), str(workspace))
    assert (restored.session_id, restored.flush_status) == (SESSION, "completed")
    assert (restored.is_ready, restored.error) == (True, None)
    assert restored.status == "Restored from snapshot"
    snapshot = restored.snapshot
    assert restored.cursor == snapshot.cursor == runtime.cursor
    assert (snapshot.session_id, snapshot.last_init) == (SESSION, INIT)
    state = snapshot.state
    assert (state.is_ready, state.is_responding) == (True, False)
    assert (state.last_status, state.last_error) == ("Restored from snapshot", UNSET)
    assert state.pending_approvals == before.pending_approvals
    assert state.pending_requests == before.pending_requests
    assert state.tracked_tools == before.tracked_tools
    assert (state.model, state.cwd) == ("scenario", str(workspace))


async def test_clients_their_lease_and_their_utilities_are_not_restored(workspace: Path) -> None:
    runtime = Playing(heard.ConnectionInfo(**INFO), COMMAND, WATCH)
    before = runtime.conversation.state
    assert before.active_utility_commands
    assert before.active_file_watches
    assert (before.connection_count, len(before.connections)) == (2, 1)
    state = load(await left_by(runtime, workspace), str(workspace)).snapshot.state
    assert (state.connection_count, state.subscriber_count, state.connections) == (0, 0, ())
    assert (state.active_utility_commands, state.active_file_watches) == ((), ())
    assert state.controller_connection_id is UNSET
    assert state.connection_role is UNSET


@pytest.mark.parametrize("said", [None, "why it failed"])
@pytest.mark.parametrize("word", ["failed", "interrupted"])
def test_what_was_not_stopped_as_it_should_can_be_looked_at_and_not_attached_to(
    workspace: Path, word: str, said: str | None
) -> None:
    runtime = {"flush_status": word, "session_id": "sess_old", "cursor": 9, "error": said}
    restored = load(written(workspace, foreign(runtime=runtime)), str(workspace))
    assert restored.flush_status == "failed"
    assert restored.status == "Restore interrupted before runtime flush completed"
    assert restored.error == (said or "runtime flush failed before restore")
    state = restored.snapshot.state
    assert (state.is_ready, state.last_status) == (False, restored.status)
    assert (state.last_error, state.last_error_type) == (restored.error, "protocol")
    assert (restored.session_id, restored.cursor, state.model) == ("sess_old", 9, "m")
    runner = Runner(identity(workspace), restored=restored)
    assert not runner.answer().ready
    with pytest.raises(NotReady, match=restored.error):
        runner.check_ready()


async def test_an_interrupted_drain_is_not_gone_on_from(workspace: Path) -> None:
    path = await left_by(Playing(stop_fails=OSError("disk gone")), workspace)
    restored = load(path, str(workspace))
    assert (restored.is_ready, restored.error) == (False, "disk gone")
    assert restored.snapshot.state.session_id == SESSION


async def test_a_runtime_that_was_not_there_is_not_gone_on_from(workspace: Path) -> None:
    path = await left_by(None, workspace, maestro_session_id="session_7")
    restored = load(path, str(workspace))
    assert (restored.session_id, restored.cursor) == ("session_7", 0)
    assert (restored.flush_status, restored.is_ready) == ("skipped", False)
    assert restored.status == "Restore incomplete: runtime flush skipped"
    assert restored.error == "runtime flush was skipped; no runtime activity was persisted"
    assert not Runner(identity(workspace), restored=restored).answer().ready


async def test_the_runner_keeps_its_own_id_and_may_be_given_another_session(
    workspace: Path,
) -> None:
    path = await left_by(Playing(), workspace)
    restored = load(path, str(workspace), session_id="session_new")
    assert restored.session_id == restored.snapshot.session_id == "session_new"
    assert restored.snapshot.state.session_id == "session_new"
    runner = Runner(identity(workspace, runner_session_id="mrs_new"), restored=restored)
    assert (runner.answer().runner_session_id, runner.answer().ready) == ("mrs_new", True)


def test_an_older_manifest_of_another_make_is_read(workspace: Path) -> None:
    manifest = foreign(
        something_new={"a": 1},
        reason=None,
        git={"commit": "abc", "dirty": False},
        workspace_export={
            "mode": "local_path_contract",
            "paths": [{"relative_path": "not/there", "type": "missing"}],
        },
    )
    unset = dict.fromkeys(("current_response", "last_error", "provider", "git_branch"))
    manifest["snapshot"]["state"] |= unset
    restored = load(written(workspace, manifest), str(workspace))
    assert (restored.session_id, restored.cursor, restored.is_ready) == ("sess_old", 7, True)
    assert restored.snapshot.state.git_branch is None
    assert manifest["snapshot"]["state"]["is_responding"]
    assert not restored.snapshot.state.is_responding, "nothing works yet"


@pytest.mark.skipif(not PRESENT, reason="the published examples are not here")
def test_nulls_and_fractions_of_another_make_are_read_wherever_they_are(workspace: Path) -> None:
    call = {"call_id": "c1", "tool": "bash", "args": {"key": None, "ms": 1.5}}
    unset = {"request_id": None, "display_name": None, "started_at_ms": 1776902400000.0}
    manifest = foreign(runtime={"flush_status": "completed", "cursor": 7.0, "error": None})
    manifest["snapshot"] |= {"cursor": 6.0}
    manifest["snapshot"]["state"] |= {
        "tracked_tools": [call],
        "pending_approvals": [call | unset],
        "current_response": {"response_id": "r", "text": "t", "thinking": "", "usage": None},
        "codex_subagent_edges": [{"thread_id": None, "operation": "wait", "status": "failed"}],
        "last_ttft_ms": 812.4,
    }
    restored = load(written(workspace, manifest), str(workspace))
    state = restored.snapshot.state
    assert (restored.cursor, state.last_ttft_ms) == (7, 812)
    (approval,) = state.pending_approvals
    assert (approval.request_id, approval.started_at_ms) == (UNSET, 1776902400000)
    assert approval.args == call["args"]
    assert state.codex_subagent_edges == (Edge(operation="wait", status="failed"),)


@pytest.mark.skipif(not PRESENT, reason="the published examples are not here")
def test_the_published_manifest_is_gone_on_from(workspace: Path) -> None:
    examples = msgspec.json.decode((PUBLISHED / "seed-examples.json").read_bytes())
    name = written(workspace, examples["drain_response"]["manifest"])
    restored = load(name, str(workspace))
    assert (restored.session_id, restored.cursor, restored.is_ready) == ("session_123", 42, True)
    snapshot = wire(restored.snapshot)
    Published().check_named("HeadlessRuntimeSnapshotSchema", snapshot)


@pytest.mark.skipif(not PRESENT, reason="the published schemas are not here")
async def test_a_restored_snapshot_is_a_published_one(workspace: Path) -> None:
    runtime = Playing(heard.ConnectionInfo(**INFO), asked("c1"), COMMAND, WATCH)
    restored = load(await left_by(runtime, workspace), str(workspace))
    Published().check_named("HeadlessRuntimeSnapshotSchema", wire(restored.snapshot))


@pytest.mark.parametrize(
    ("runtime_cursor", "snapshot_cursor", "cursor"), [(9, 7, 9), (None, 7, 7), (0, 7, 0)]
)
def test_the_cursor_is_the_runtimes_or_else_the_snapshots(
    workspace: Path, runtime_cursor: int | None, snapshot_cursor: int, cursor: int
) -> None:
    manifest = foreign()
    manifest["runtime"] |= {"cursor": runtime_cursor}
    manifest["snapshot"] |= {"cursor": snapshot_cursor}
    restored = load(written(workspace, manifest), str(workspace))
    assert restored.cursor == restored.snapshot.cursor == cursor


def test_without_a_snapshot_there_are_still_session_and_cursor(workspace: Path) -> None:
    manifest = foreign()
    del manifest["snapshot"]
    restored = load(written(workspace, manifest), str(workspace))
    assert (restored.session_id, restored.cursor) == ("sess_old", 7)
    assert restored.snapshot.state.session_id == "sess_old"


def test_a_path_is_looked_up_in_the_workspace_or_taken_as_it_is(
    workspace: Path, tmp_path: Path
) -> None:
    (workspace / "kept").mkdir()
    inner = written(workspace, foreign(), "kept/manifest.json")
    outer = written(tmp_path, foreign(), "elsewhere.json")
    assert load(inner, str(workspace)) == load(str(tmp_path / outer), str(workspace))


def change(**changes: Any) -> Json:
    manifest = foreign()
    for path, value in changes.items():
        holder, _, name = path.rpartition("__")
        (manifest[holder] if holder else manifest)[name] = value
    return manifest


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (change(protocol_version="evalops.remote-runner.snapshot-manifest.v2"), "v2"),
        (change(protocol_version=1), "protocol_version"),
        (change(maestro_session_id=" "), "maestro_session_id is empty"),
        (change(runtime__flush_status="flushed"), "'flushed'"),
        (change(runtime__cursor=-1), "cursor"),
        (change(runtime__cursor=2**70), "cursor"),
        (change(runtime__cursor="7"), "cursor"),
        (change(runtime="completed"), "runtime"),
        (change(workspace_export__mode="bucket"), "'bucket'"),
        (change(workspace_export__paths=[{"relative_path": "../x"}]), "escapes"),
        (change(workspace_export__paths=[{"relative_path": "/etc"}]), "escapes"),
        (change(workspace_export__paths=[{"relative_path": "out/not/there"}]), "escapes"),
        (change(workspace_export__paths=[{"relative_path": "a\0b"}]), "NUL"),
        (change(workspace_export__paths=[{"relative_path": ""}]), "empty"),
        (change(workspace_export__paths=[{}]), "relative_path"),
        (change(snapshot__state={"tracked_tools": [{"tool": 1}]}), "snapshot.state"),
        (change(snapshot__state=[]), "state"),
        (change(snapshot__last_init={"type": "prompt"}), "last_init"),
        ([], "object"),
        ("manifest", "object"),
    ],
)
def test_a_manifest_that_cannot_be_gone_on_from_is_refused_with_the_reason(
    workspace: Path, tmp_path: Path, manifest: object, said: str
) -> None:
    (workspace / "out").symlink_to(tmp_path)
    assert said in str(refused(written(workspace, manifest), workspace))


def test_a_state_too_deep_to_be_walked_through_is_refused(workspace: Path) -> None:
    deep: object = 1
    for _ in range(200):
        deep = [deep]
    tracked = [{"call_id": "c1", "tool": "t", "args": deep}]
    name = written(workspace, change(snapshot__state={"tracked_tools": tracked}))
    assert "levels deep" in str(refused(name, workspace))


def test_tools_that_were_lent_before_are_not_restored(workspace: Path) -> None:
    deep: object = {}
    for _ in range(300):
        deep = {"inner": deep}
    lent = [{"name": "lookup", "input_schema": deep}]
    init = {"type": "init", "system_prompt": "Be brief.", "client_tools": lent}
    found = load(written(workspace, change(snapshot__last_init=init)), str(workspace))
    assert wire(found.snapshot)["last_init"] == {"type": "init", "system_prompt": "Be brief."}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"null", b"\xff\xfe", b'{"protocol_version":"\xff"}', b"[" * 100_000]
)
def test_bytes_that_are_no_manifest_are_refused(workspace: Path, content: bytes) -> None:
    (workspace / "manifest.json").write_bytes(content)
    refused("manifest.json", workspace)


def test_what_cannot_be_read_is_refused(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(refused("missing.json", workspace), NotFound)
    assert isinstance(refused("notes.md/x", workspace), NotFound)
    assert isinstance(refused(".", workspace), NotFound)
    os.mkfifo(workspace / "pipe")
    assert "not a file" in str(refused("pipe", workspace))
    if os.geteuid():
        written(workspace, foreign(), "closed.json")
        (workspace / "closed.json").chmod(0)
        assert isinstance(refused("closed.json", workspace), NotFound)
    monkeypatch.setattr(restore, "LARGEST", 10)
    assert "10 are the most" in str(refused("notes.md", workspace))


def test_without_a_workspace_nothing_is_restored(workspace: Path) -> None:
    with pytest.raises(NotReady):
        load("manifest.json", str(workspace / "gone"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_a_damaged_byte_is_refused_or_other_data_but_never_a_crash(
    workspace: Path, data: st.DataObject
) -> None:
    content = bytearray(msgspec.json.encode(foreign()))
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (workspace / "manifest.json").write_bytes(content)
    with suppress(CallerError):
        restored = load("manifest.json", str(workspace))
        assert restored.snapshot.cursor == restored.cursor
