"""What a drain does, in which order, and what it leaves behind."""

import asyncio
import os
import stat
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract.errors import CallerError, HandoverFailed, NotReady
from batten.protocols.maestro import outgoing as heard
from batten.protocols.maestro.hosted import RuntimeSnapshot
from batten.runner import flush as flushing
from batten.runner import git as git_state
from batten.runner.drain import Drained
from batten.runner.evidence import PlatformEvidence
from batten.runner.manifest import encode, file_name
from batten.runner.request import DrainRequest
from batten.runner.runner import Runner
from tests.maestro.schemas import PRESENT, PUBLISHED, Published

from .given import (
    AT,
    KEPT,
    SESSION,
    Playing,
    asked,
    called,
    drain,
    fields,
    git,
    identity,
    keys,
    manifest_file,
    needs_git,
    started,
    wire,
)

ASKED = DrainRequest(reason="ttl_expired", requested_by="platform", export_paths=(".", "notes.md"))
LATER = DrainRequest(reason="process_shutdown", requested_by="runner")
FORBIDDEN = {"status", "manifest_version", "snapshot_root", "snapshot_path", "stop_reason"}


async def test_a_drain_stops_the_runtime_and_answers_what_it_wrote(workspace: Path) -> None:
    runtime = Playing(heard.Status(message="working"))
    drained = await drain(ASKED, identity(workspace), runtime)
    assert (runtime.snapshots, runtime.stopped) == (1, 1)
    name = "mrs_123-2026-04-23T00_00_00_000Z.json"
    assert drained.manifest_path == f"{workspace}/.maestro/runner-snapshots/{name}"
    answered = wire(drained)
    assert {key: value for key, value in answered.items() if key != "manifest"} == {
        "protocol_version": "evalops.remote-runner.drain.v1",
        "status": "drained",
        "runner_session_id": "mrs_123",
        "requested_by": "platform",
        "reason": "ttl_expired",
        "manifest_path": drained.manifest_path,
    }
    assert answered["manifest"] == manifest_file(drained)


async def test_the_manifest_that_is_answered_is_the_one_in_its_file(workspace: Path) -> None:
    drained = await drain(ASKED, identity(workspace), Playing())
    written = Path(drained.manifest_path).read_bytes()
    assert written == encode(drained.manifest)
    assert written.endswith(b"\n}\n")


async def test_the_manifest_says_what_was_there(workspace: Path) -> None:
    runtime = Playing(heard.Status(message="working"))
    before = wire(runtime.conversation.state)
    manifest = manifest_file(await drain(ASKED, identity(workspace), runtime))
    assert manifest["snapshot"]["state"] == before
    digest = manifest.pop("manifest_sha256")
    assert digest == sha256(msgspec.json.encode(manifest, order="sorted")).hexdigest()
    del manifest["snapshot"], manifest["platform_evidence"], manifest["work_continuity"]
    root = str(workspace)
    assert manifest == {
        "protocol_version": "evalops.remote-runner.snapshot-manifest.v1",
        "runner_session_id": "mrs_123",
        "workspace_id": "workspace_123",
        "agent_run_id": "run_123",
        "maestro_session_id": SESSION,
        "reason": "ttl_expired",
        "requested_by": "platform",
        "created_at": "2026-04-23T00:00:00.000Z",
        "workspace_root": root,
        "runtime": {
            "flush_status": "completed",
            "session_id": SESSION,
            "session_file": KEPT.path,
            "session_file_sha256": KEPT.sha256,
            "protocol_version": "2026-04-02",
            "cursor": 3,
        },
        "workspace_export": {
            "mode": "local_path_contract",
            "paths": [
                {"input": ".", "path": root, "relative_path": ".", "type": "directory"},
                {
                    "input": "notes.md",
                    "path": f"{root}/notes.md",
                    "relative_path": "notes.md",
                    "type": "file",
                },
            ],
        },
        "retention_policy": {
            "policy_version": "evalops.remote-runner.retention.v1",
            "managed_by": "platform",
            "visibility": {
                "control_plane_metadata": "operator",
                "workspace_export": "tenant",
                "runtime_snapshot": "internal",
                "runtime_logs": "operator",
            },
            "redaction": {
                "required_before_external_persistence": ["runtime_snapshot", "runtime_logs"],
                "forbidden_plaintext": [
                    "provider_credentials",
                    "tool_secrets",
                    "attach_tokens",
                    "artifact_access_tokens",
                    "raw_environment",
                ],
            },
        },
    }


async def test_evidence_repeats_ids_and_counts_and_says_where_the_rest_is(workspace: Path) -> None:
    recorded: list[PlatformEvidence] = []
    drained = await drain(ASKED, identity(workspace), Playing(), recorded.append)
    evidence = manifest_file(drained)["platform_evidence"]
    assert [wire(one) for one in recorded] == [evidence]
    assert evidence == {
        "protocol_version": "evalops.remote-runner.platform-evidence.v1",
        "event_type": "hosted_runner_drain_manifest_recorded",
        "runner_session_id": "mrs_123",
        "workspace_id": "workspace_123",
        "agent_run_id": "run_123",
        "maestro_session_id": SESSION,
        "status": "drained",
        "runtime_flush_status": "completed",
        "manifest_path": drained.manifest_path,
        "manifest_protocol_version": "evalops.remote-runner.snapshot-manifest.v1",
        "created_at": "2026-04-23T00:00:00.000Z",
        "reason": "ttl_expired",
        "requested_by": "platform",
        "work_continuity": {
            "protocol_version": "evalops.remote-runner.work-continuity.v1",
            "codex_subagent_schema_version": "evalops.maestro.codex.subagent-workgraph.v1",
            "active_tool_count": 0,
            "tracked_tool_count": 0,
            "pending_request_count": 0,
            "codex_subagent_tool_call_count": 0,
            "codex_subagent_child_run_count": 0,
            "codex_subagent_thread_count": 0,
            "codex_subagent_edge_count": 0,
            "codex_subagent_tool_call_ids": [],
            "codex_subagent_child_run_ids": [],
            "codex_subagent_thread_ids": [],
        },
        "retention": {
            "policy_version": "evalops.remote-runner.retention.v1",
            "control_plane_metadata_visibility": "operator",
            "runtime_snapshot_visibility": "internal",
            "redaction_required_before_external_persistence": ["runtime_snapshot", "runtime_logs"],
        },
        "evidence_refs": [
            "remote-runner://sessions/mrs_123/drain#manifest",
            f"maestro://headless/sessions/{SESSION}#drain",
            "platform-agent-run:run_123",
        ],
    }


async def test_what_is_not_known_is_left_out(workspace: Path) -> None:
    runner = identity(workspace, workspace_id=None, agent_run_id=None)
    drained = await drain(DrainRequest(), runner, None)
    manifest = manifest_file(drained)
    unknown = {"workspace_id", "agent_run_id", "reason", "requested_by", "git", "error"}
    assert not unknown & keys(manifest)
    assert not unknown & set(wire(drained))
    assert manifest["platform_evidence"]["evidence_refs"] == [
        "remote-runner://sessions/mrs_123/drain#manifest",
        "maestro://headless/sessions/mrs_123#drain",
    ]


async def test_no_key_of_other_formats_is_in_a_manifest(workspace: Path) -> None:
    manifest = manifest_file(await drain(ASKED, identity(workspace), Playing()))
    assert not FORBIDDEN & set(manifest)
    # What a pending request and evidence say of themselves is something else.
    del manifest["snapshot"], manifest["platform_evidence"]
    assert not FORBIDDEN & keys(manifest)


@pytest.mark.skipif(not PRESENT, reason="the published examples are not here")
async def test_every_field_of_the_published_example_is_written(workspace: Path) -> None:
    example = msgspec.json.decode((PUBLISHED / "seed-examples.json").read_bytes())["drain_response"]
    drained = await drain(ASKED, identity(workspace), Playing())
    answered = fields(wire(drained))
    wanted = fields(example)
    assert {path for path in wanted if path not in answered} == {".manifest.snapshot.last_init"}
    assert {path for path in wanted if answered.get(path, wanted[path]) != wanted[path]} == set()


@pytest.mark.skipif(not PRESENT, reason="the published schemas are not here")
@pytest.mark.parametrize("is_live", [True, False])
async def test_the_snapshot_in_a_manifest_is_a_published_one(
    workspace: Path, is_live: bool
) -> None:
    runtime = Playing(asked("c1"), called("c2", "read"), started("c2")) if is_live else None
    manifest = manifest_file(await drain(ASKED, identity(workspace), runtime))
    Published().check_named("HeadlessRuntimeSnapshotSchema", manifest["snapshot"])


async def test_secrets_are_not_written(workspace: Path) -> None:
    known, shaped = "correct-horse-battery", "sk-ant-api03-" + "Ab3dEf6h" * 12
    args = {"url": f"https://x/?key={known}", "headers": {"Authorization": f"Bearer {shaped}"}}
    runtime = Playing(
        asked("c1", args=args, kind="client_tool"),
        called("c2", "bash"),
        started("c2"),
        heard.ToolOutput(call_id="c2", content=f"KEY={shaped}\n{known}"),
        stop_fails=OSError(f"refused {shaped}"),
    )
    wanted = DrainRequest(reason=f"leaked {shaped}", requested_by=known)
    drained = await drain(wanted, identity(workspace), runtime, environ={"API_TOKEN": known})
    for content in (Path(drained.manifest_path).read_text(), msgspec.json.encode(drained).decode()):
        assert known not in content
        assert shaped not in content
        assert content.count("<redacted>") >= 6


async def test_what_holds_no_secret_is_written_as_it_is(workspace: Path) -> None:
    runtime = Playing(asked("c1"), called("call_01K8Z5V0M3X8RJ4T6W9QYB2HNC", "read"))
    before = runtime.snapshot()
    drained = await drain(ASKED, identity(workspace), runtime)
    assert drained.manifest.snapshot == before


async def test_requests_are_counted_where_they_wait(workspace: Path) -> None:
    kinds = ("approval", "client_tool", "mcp_elicitation", "user_input", "tool_retry")
    runtime = Playing(*(asked(f"c_{kind}", kind=kind) for kind in kinds), asked("c9"))
    manifest = manifest_file(await drain(ASKED, identity(workspace), runtime))
    assert manifest["work_continuity"]["pending_request_count"] == 6


async def test_a_runtime_that_does_not_stop_is_told_in_a_manifest_all_the_same(
    workspace: Path,
) -> None:
    runtime = Playing(
        called("c1", "bash"), started("c1"), asked("c2"), stop_fails=OSError("disk gone")
    )
    drained = await drain(ASKED, identity(workspace), runtime)
    manifest = manifest_file(drained)
    assert drained.status == manifest["platform_evidence"]["status"] == "interrupted"
    assert manifest["runtime"] == {
        "flush_status": "failed",
        "error": "disk gone",
        "session_id": SESSION,
        "session_file": KEPT.path,
        "session_file_sha256": KEPT.sha256,
        "protocol_version": "2026-04-02",
        "cursor": 5,
    }
    assert manifest["platform_evidence"]["runtime_flush_status"] == "failed"
    assert manifest["snapshot"]["state"]["active_tools"][0]["call_id"] == "c1"
    work = manifest["work_continuity"]
    assert (work["active_tool_count"], work["pending_request_count"]) == (1, 1)


async def test_a_runtime_without_a_snapshot_is_stopped_and_one_is_made_up(workspace: Path) -> None:
    runtime = Playing(snapshot_fails=ValueError("no state"))
    drained = await drain(ASKED, identity(workspace, maestro_session_id="named"), runtime)
    manifest = manifest_file(drained)
    assert (runtime.stopped, drained.status) == (1, "interrupted")
    assert manifest["runtime"]["error"] == "no state"
    assert manifest["snapshot"]["session_id"] == manifest["maestro_session_id"] == "named"
    state = manifest["snapshot"]["state"]
    assert state["last_status"] == "Drain interrupted before runtime flush completed"
    assert (state["last_error"], state["last_error_type"]) == ("no state", "protocol")
    assert not state["is_ready"]


async def test_a_snapshot_that_is_made_up_has_the_cursor_if_that_is_known(workspace: Path) -> None:
    class Startled(Playing):
        def snapshot(self) -> RuntimeSnapshot:
            if self.stopped == 0:
                raise ValueError("not now")
            return super().snapshot()

    manifest = (await drain(ASKED, identity(workspace), Startled())).manifest
    assert manifest.runtime.cursor == manifest.snapshot.cursor == 2


async def test_a_runtime_that_never_stops_is_not_waited_for(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stuck(Playing):
        async def stop(self) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(flushing, "STOP_S", 0.01)
    drained = await drain(ASKED, identity(workspace), Stuck())
    assert drained.status == "interrupted"
    assert drained.manifest.runtime.error == "Runtime did not stop within 0.01 s"


async def test_a_time_out_inside_the_runtime_is_told_in_its_own_words(workspace: Path) -> None:
    runtime = Playing(stop_fails=TimeoutError("journal busy"))
    drained = await drain(ASKED, identity(workspace), runtime)
    assert drained.manifest.runtime.error == "journal busy"


async def test_who_gives_up_on_a_drain_gets_no_answer(workspace: Path) -> None:
    runtime = Playing(stop_fails=asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await drain(ASKED, identity(workspace), runtime)
    assert not (workspace / ".maestro").exists()


async def test_without_a_runtime_the_flush_is_skipped(workspace: Path) -> None:
    drained = await drain(ASKED, identity(workspace), None)
    manifest = manifest_file(drained)
    assert drained.status == "drained"
    assert manifest["runtime"] == {
        "flush_status": "skipped",
        "session_id": "mrs_123",
        "protocol_version": "2026-04-02",
        "cursor": 0,
    }
    state = manifest["snapshot"]["state"]
    assert (state["is_ready"], state["cwd"]) == (False, str(workspace))
    assert state["last_status"] == "Drain skipped: no runtime activity was available"


@pytest.mark.parametrize("path", ["..", "missing", "out/x"])
async def test_a_request_that_is_refused_changes_nothing(workspace: Path, path: str) -> None:
    (workspace / "out").symlink_to("/etc")
    runner, runtime = Runner(identity(workspace), now=lambda: AT), Playing()
    with pytest.raises(CallerError, match="Export path"):
        await runner.drain(DrainRequest(export_paths=(path,)), runtime)
    assert (runtime.snapshots, runtime.stopped) == (0, 0)
    assert (runner.answer().draining, runner.answer().ready) == (False, True)
    runner.check_attachable()
    assert (await runner.drain(DrainRequest(), runtime)).status == "drained"
    with pytest.raises(CallerError, match="Export path"):
        await runner.drain(DrainRequest(export_paths=(path,)), runtime)
    assert (runner.answer().draining, runner.answer().ready) == (True, False)


async def test_a_refused_drain_opens_no_door_while_another_is_in_progress(workspace: Path) -> None:
    seen: list[bool] = []

    class Asked(Playing):
        async def stop(self) -> None:
            with runner.turning_away():
                pass
            seen.append(runner.answer().draining)

    runner = Runner(identity(workspace), now=lambda: AT)
    await runner.drain(ASKED, Asked(stop_fails=OSError("busy")))
    assert seen == [True]
    assert runner.answer().draining


async def test_without_a_workspace_nothing_is_stopped(workspace: Path) -> None:
    runtime = Playing()
    runner = Runner(identity(workspace / "gone"), now=lambda: AT)
    with pytest.raises(NotReady):
        await runner.drain(ASKED, runtime)
    assert runtime.stopped == 0
    assert (runner.answer().draining, runner.answer().ready) == (False, False)
    (workspace / "gone").mkdir()
    assert runner.answer().ready


async def test_clients_are_refused_from_the_moment_a_drain_begins(workspace: Path) -> None:
    seen: list[bool] = []

    class Watching(Playing):
        async def stop(self) -> None:
            seen.append(runner.answer().draining)

    runner = Runner(identity(workspace), now=lambda: AT)
    await runner.drain(ASKED, Watching())
    assert seen == [True]


async def test_a_complete_drain_is_not_repeated_and_its_manifest_stays_the_last(
    workspace: Path,
) -> None:
    runner, runtime = Runner(identity(workspace), now=lambda: AT), Playing()
    first, second = await asyncio.gather(runner.drain(ASKED, runtime), runner.drain(LATER, runtime))
    assert runtime.stopped == 1
    assert second is first
    assert first.manifest.runtime.flush_status == "completed"
    assert manifest_file(first) == wire(first.manifest)
    [written] = Path(first.manifest_path).parent.iterdir()
    assert str(written) == first.manifest_path
    with pytest.raises(CallerError, match="Export path"):
        await runner.drain(DrainRequest(export_paths=("..",)), None)


async def test_an_interrupted_drain_can_be_tried_again(workspace: Path) -> None:
    runner = Runner(identity(workspace), now=lambda: AT)
    failing = Playing(stop_fails=OSError("busy"))
    assert (await runner.drain(ASKED, failing)).status == "interrupted"
    assert (await runner.drain(ASKED, Playing())).manifest.runtime.flush_status == "completed"


@pytest.mark.parametrize(
    ("fails", "flush"), [(None, "completed"), (OSError("disk gone"), "failed")]
)
async def test_a_manifest_that_cannot_be_written_leaves_evidence_of_what_became_of_the_runtime(
    workspace: Path, fails: Exception | None, flush: str
) -> None:
    (workspace / ".maestro").write_text("in the way")
    recorded: list[PlatformEvidence] = []
    runner = Runner(identity(workspace), now=lambda: AT, record=recorded.append)
    with pytest.raises(HandoverFailed, match="Snapshot manifest cannot be written"):
        await runner.drain(ASKED, Playing(stop_fails=fails))
    assert runner.answer().draining
    [evidence] = recorded
    assert (evidence.status, evidence.runtime_flush_status) == ("interrupted", flush)
    assert evidence.manifest_path.startswith(f"{workspace}/.maestro/runner-snapshots/mrs_123-")


async def test_a_manifest_that_could_not_be_written_is_written_when_asked_for_again(
    workspace: Path,
) -> None:
    (workspace / ".maestro").write_text("in the way")
    runner, runtime = Runner(identity(workspace), now=lambda: AT), Playing(asked("c1"))
    before = runtime.snapshot()
    with pytest.raises(HandoverFailed):
        await runner.drain(ASKED, runtime)
    (workspace / ".maestro").unlink()
    drained = await runner.drain(ASKED, runtime)
    assert (drained.status, runtime.stopped) == ("drained", 1)
    assert drained.manifest.snapshot == before
    assert drained.manifest.runtime.flush_status == "completed"
    assert await runner.drain(ASKED, runtime) is drained


async def test_an_id_that_is_no_text_keeps_the_manifest_from_being_written(
    workspace: Path,
) -> None:
    runner = identity(workspace, runner_session_id=os.fsdecode(b"mrs_\xff"))
    with pytest.raises(HandoverFailed, match="surrogates"):
        await drain(ASKED, runner, Playing())
    assert not (workspace / ".maestro").exists()


async def test_a_link_in_the_workspace_leads_no_manifest_elsewhere(
    workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (workspace / ".maestro").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HandoverFailed, match="outside workspace root"):
        await drain(ASKED, identity(workspace), Playing())
    assert os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.parametrize("is_absolute", [True, False])
async def test_manifests_go_where_they_are_wanted_for_nobody_else_to_read(
    workspace: Path, tmp_path: Path, is_absolute: bool
) -> None:
    wanted = str(tmp_path.resolve() / "kept" / "here") if is_absolute else "kept"
    drained = await drain(ASKED, identity(workspace, snapshot_root=wanted), Playing())
    assert os.path.dirname(drained.manifest_path) == str(workspace / wanted)
    assert stat.S_IMODE(os.stat(drained.manifest_path).st_mode) == 0o600
    assert os.listdir(os.path.dirname(drained.manifest_path)) == [
        os.path.basename(drained.manifest_path)
    ]


HOSTILE = ["../../../etc/x", "/abs", "..", ".", "a/b\\c", "x" * 5000, "\0", "é\n", "con:1 .json"]


@pytest.mark.parametrize("session", HOSTILE)
async def test_a_hostile_id_leads_no_manifest_elsewhere(workspace: Path, session: str) -> None:
    runner = identity(workspace, runner_session_id=session)
    drained = await drain(ASKED, runner, Playing())
    place = workspace / ".maestro" / "runner-snapshots"
    assert os.path.realpath(os.path.dirname(drained.manifest_path)) == str(place)
    assert manifest_file(drained)["runner_session_id"] == session
    assert [entry.name for entry in workspace.iterdir() if entry.name != "notes.md"] == [".maestro"]


@given(st.text(), st.integers(1, 10**6))
def test_a_name_is_plain_and_short_whatever_the_id_is(session: str, number: int) -> None:
    name = file_name(session, "2026-04-23T00:00:00.000Z", number)
    stem = name.removesuffix(".json")
    assert stem.isascii()
    assert stem.replace("_", "").replace("-", "").isalnum()
    assert len(name) <= 255


async def test_the_cursor_is_that_of_what_was_said_last_and_the_snapshot_of_before_the_stop(
    workspace: Path,
) -> None:
    said = [heard.Status(message=f"{number}") for number in range(41)]
    drained: Drained = await drain(ASKED, identity(workspace), Playing(*said))
    assert drained.manifest.snapshot.cursor == 42
    assert drained.manifest.snapshot.state.last_status == "40"
    assert drained.manifest.runtime.cursor == 43


@needs_git
async def test_what_git_knows_is_in_the_manifest(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_state, "DEADLINE_S", 60.0)
    git(workspace, "init", "-q", "-b", "main")
    git(workspace, "add", ".")
    git(workspace, "commit", "-q", "-m", "first")
    manifest = manifest_file(await drain(ASKED, identity(workspace), Playing()))
    commit = git(workspace, "rev-parse", "HEAD")
    assert manifest["git"] == {"commit": commit, "branch": "main", "dirty": False}
