"""A runtime that is drained, and another that goes on from what it left behind."""

import asyncio
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from batten.contract.errors import CallerError, NotFound, NotReady
from batten.contract.facts.session import TTL_EXPIRED
from batten.contract.facts.tool import ToolKind
from batten.embedded import hosted
from batten.models.contract import ToolSpec
from batten.runner.config import UNSIGNED
from batten.runner.request import DrainRequest
from batten.session.history import facts_of
from batten.tools.contract import Effect, ToolContext, ToolOutput
from tests.agent.stage import Stage, bash, call, say
from tests.maestro.attending import (
    DONE,
    PATIENCE_S,
    RUNNER,
    attending,
    hosting,
    identity,
    is_valid,
    join,
    json_of,
    looking_on,
    prepared,
    replay,
    valid,
)
from tests.maestro.schemas import Json
from tests.runner.test_restore import foreign, written

ASKED = DrainRequest(reason="pod_stopping", requested_by="suite", export_paths=("notes.md",))
AGAIN = [say("Again."), {"kind": "end", "reason": "complete"}]


async def test_a_drain_leaves_a_manifest_and_takes_nobody_any_more(stage: Stage) -> None:
    prepared(stage)
    async with hosting(stage, DONE) as runtime, attending(runtime) as controller:
        await controller.prompt()
        before = runtime.state().cursor
        drained = json_of(await runtime.drain(ASKED))
        assert drained["protocol_version"] == "evalops.remote-runner.drain.v1"
        assert (drained["status"], drained["runner_session_id"]) == ("drained", RUNNER)
        assert (drained["reason"], drained["requested_by"]) == ("pod_stopping", "suite")
        path = Path(drained["manifest_path"])
        assert RUNNER in path.name
        manifest = drained["manifest"]
        assert msgspec.json.decode(path.read_bytes()) == manifest
        assert manifest["protocol_version"] == "evalops.remote-runner.snapshot-manifest.v1"
        ids = ("runner_session_id", "workspace_id", "agent_run_id", "maestro_session_id")
        known = (RUNNER, "ws_conformance", "run_conformance", runtime.session_id)
        assert tuple(manifest[name] for name in ids) == known
        assert (manifest["reason"], manifest["requested_by"]) == ("pod_stopping", "suite")
        policy = manifest["retention_policy"]
        assert policy["policy_version"] == "evalops.remote-runner.retention.v1"
        assert (policy["managed_by"], policy["visibility"]["runtime_snapshot"]) == (
            "platform",
            "internal",
        )
        flushed = manifest["runtime"]
        assert (flushed["flush_status"], flushed["protocol_version"]) == ("completed", "2026-04-02")
        assert flushed["session_id"] == runtime.session_id
        assert flushed["cursor"] == runtime.state().cursor == manifest["snapshot"]["cursor"] > 0
        assert valid("Snapshot", manifest["snapshot"])["cursor"] == before
        assert manifest["workspace_export"]["mode"] == "local_path_contract"
        (exported,) = manifest["workspace_export"]["paths"]
        told = {name: exported[name] for name in ("input", "relative_path", "type")}
        assert told == {"input": "notes.md", "relative_path": "notes.md", "type": "file"}

        await controller.see(last_status="Drained", is_ready=False)
        with pytest.raises(NotReady, match="draining"):
            await controller.say("prompt", content="more")
        for role in ("viewer", "controller"):
            with pytest.raises(NotReady, match="draining"):
                await join(runtime, role=role)
        state = is_valid(runtime.state())["state"]  # reading goes on
        assert (state["is_ready"], state["last_status"]) == (False, "Drained")
        assert (await replay(runtime)).of("response_end")


async def test_a_restored_runtime_goes_on_with_session_and_cursor(stage: Stage) -> None:
    prepared(stage)
    model = stage.scenario(DONE, AGAIN)
    async with hosting(stage, model=model) as runtime, attending(runtime) as controller:
        await controller.say("init", system_prompt="Be brief.")
        await controller.prompt()
        session_id = runtime.session_id
        drained = await runtime.drain(ASKED)
    cursor = drained.manifest.runtime.cursor
    assert isinstance(cursor, int)
    async with hosting(stage, restore=drained.manifest_path) as runtime:
        snapshot = is_valid(runtime.state())
        assert (snapshot["session_id"], snapshot["cursor"]) == (session_id, cursor)
        assert snapshot["last_init"] == {"type": "init", "system_prompt": "Be brief."}
        state = snapshot["state"]
        assert (state["last_status"], state["is_ready"]) == ("Restored from snapshot", True)
        assert (state["connections"], state["provider"]) == ([], "scripted")
        async with looking_on(runtime, 0) as reader:
            first = await reader.read()
        assert (first["type"], first["reason"]) == ("reset", "restored_from_snapshot")
        assert first["snapshot"]["session_id"] == session_id
        assert first["snapshot"]["cursor"] == cursor
        assert first["snapshot"]["state"]["last_status"] == "Restored from snapshot"
        subscribed = await join(runtime)
        assert subscribed.controller_lease_granted
        await runtime.disconnect(subscription_id=subscribed.subscription_id)
        async with attending(runtime) as controller:
            said = await controller.prompt("go on")
            chunks = [one["content"] for one in said if one["type"] == "response_chunk"]
            assert "".join(chunks) == "Again."  # where the script was left
            assert min(controller.cursors) > cursor
    journal = stage.journal()
    assert len(await journal.runs(session_id=session_id)) == 2
    journal.close()


async def test_what_waits_when_it_is_drained_ends_and_is_in_the_manifest(stage: Stage) -> None:
    model = stage.scenario([bash("echo ran", "c1")], AGAIN)
    async with (
        hosting(stage, model=model) as runtime,
        attending(runtime, "approval") as controller,
        attending(runtime, role="viewer") as viewer,
    ):
        await controller.say("utility_command_start", command_id="u1", command="sleep 600")
        await controller.say("prompt", content="go")
        await controller.hear("server_request")
        drained = await runtime.drain()
        assert drained.manifest.work_continuity.pending_request_count == 1
        shown = drained.manifest.snapshot.state
        assert [one.command_id for one in shown.active_utility_commands] == ["u1"]
        await viewer.see(last_status="Drained")
        (resolved,) = viewer.of("server_request_resolved")
        assert (resolved["resolution"], resolved["reason"]) == (
            "cancelled",
            "Shutdown before request completed",
        )
        (exited,) = viewer.of("utility_command_exited")
        assert (
            exited["reason"] == "Headless runtime shutdown while utility command was still running"
        )
        assert len(viewer.of("response_end")) == 1
        with pytest.raises(NotReady):
            await controller.say("tool_response", call_id="c1", approved=True)
    async with (
        hosting(stage, restore=drained.manifest_path) as runtime,
        attending(runtime, "approval") as controller,
        looking_on(runtime) as viewer,
    ):
        state = is_valid(runtime.state())["state"]
        assert len(state["pending_approvals"]) == 1  # as it was: it is over, and can be seen
        assert state["active_utility_commands"] == []
        await controller.prompt("go on")
        state = is_valid(runtime.state())["state"]
        assert state["pending_approvals"] == state["tracked_tools"] == []
        # Whoever was shown the request is shown that it is gone.
        await viewer.see(pending_approvals=[], tracked_tools=[])


async def test_two_drains_at_once_are_one_drain(stage: Stage) -> None:
    async with hosting(stage, DONE) as runtime, attending(runtime, role="viewer") as viewer:
        async with asyncio.timeout(PATIENCE_S):
            first, second = await asyncio.gather(runtime.drain(), runtime.drain())
        assert first == second
        assert (first.status, first.manifest.runtime.flush_status) == ("drained", "completed")
        assert first.manifest.maestro_session_id == runtime.session_id
        assert first.manifest.runtime.cursor == runtime.state().cursor
        await viewer.see(last_status="Drained")


async def test_a_manifest_without_a_runtime_can_be_read_and_not_attached_to(stage: Stage) -> None:
    async with hosting(stage, DONE) as runtime:
        session_id = runtime.session_id
        await runtime.message({"type": "shutdown"})
        skipped = await runtime.drain()
    async with hosting(stage, restore=skipped.manifest_path) as runtime:
        snapshot = is_valid(runtime.state())
        assert snapshot["state"]["last_status"] == "Restore incomplete: runtime flush skipped"
        assert snapshot["state"]["is_ready"] is False
        with pytest.raises(NotReady):
            await join(runtime, role="viewer")
        async with looking_on(runtime, 0) as reader:
            assert (await reader.read())["reason"] == "restored_from_snapshot"
        again = await runtime.drain()
        assert again.manifest.runtime.flush_status == "skipped"
        assert again.manifest.maestro_session_id == session_id


async def test_a_drain_after_a_shutdown_has_nothing_to_stop_and_says_so(stage: Stage) -> None:
    async with hosting(stage, DONE) as runtime:
        await runtime.message({"type": "shutdown"})
        drained = await runtime.drain({"stop_reason": "ttl_expired"})
        assert (drained.status, drained.reason) == ("drained", "ttl_expired")
        assert drained.manifest.runtime.flush_status == "skipped"
        assert drained.manifest.maestro_session_id == runtime.session_id
    with pytest.raises(NotFound, match="Headless session not found"):
        await runtime.drain()


async def test_a_drain_that_is_refused_changes_nothing(stage: Stage) -> None:
    async with hosting(stage, DONE) as runtime, attending(runtime) as controller:
        with pytest.raises(CallerError, match="Export path is unavailable"):
            await runtime.drain(DrainRequest(reason=TTL_EXPIRED, export_paths=("nowhere",)))
        assert runtime.state().state.is_ready is True
        await controller.prompt()
        assert (await runtime.drain()).manifest.runtime.flush_status == "completed"


class Stubborn:
    """A tool that does not let itself be cancelled."""

    kind: ToolKind = "custom"
    effect: Effect = "execute"
    spec = ToolSpec("stubborn", "Does not end.", {"type": "object"})

    def __init__(self) -> None:
        self.freed = asyncio.Event()

    def subject(self, arguments: Json) -> str:
        return ""

    async def run(self, arguments: Json, context: ToolContext) -> ToolOutput:
        while not self.freed.is_set():
            with suppress(asyncio.CancelledError):
                await self.freed.wait()
        return ToolOutput(text="freed")


@pytest.mark.soak
async def test_a_run_that_does_not_end_is_given_up_and_the_drain_says_so(
    stage: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    tool = Stubborn()
    frames = [[call("stubborn", "c1")], DONE]
    async with (
        hosting(stage, *frames, tools=[tool], is_whole=False) as runtime,
        looking_on(runtime, 0) as viewer,
    ):
        await runtime.message({"type": "init", "approval_mode": "auto"})
        await runtime.message({"type": "prompt", "content": "go"})
        await viewer.hear("tool_start")
        async with asyncio.TaskGroup() as group:
            draining = group.create_task(runtime.drain())
            await viewer.hear("error", fatal=True)  # said by the guard, from its thread
            tool.freed.set()
        assert draining.result().status == "interrupted"
        assert draining.result().manifest.runtime.flush_status == "failed"
        await viewer.see(last_status="Drain interrupted before runtime flush completed")
        assert "did not end in time" in runtime.complaints
    assert capfd.readouterr() == ("", "")
    manifest = draining.result().manifest_path
    async with hosting(stage, restore=manifest, is_whole=False) as runtime:
        assert is_valid(runtime.state())["state"]["is_ready"] is False


async def test_who_is_no_runner_cannot_be_drained(stage: Stage) -> None:
    env = {"BATTEN_HOME": str(stage.home)}
    async with hosted(
        model=stage.scenario(DONE), workspace=stage.workspace, env=env, flags=["--sandbox", "none"]
    ) as runtime:
        with pytest.raises(NotFound, match="hosted runner drain unavailable"):
            await runtime.drain()
        state = runtime.state().state
        assert (state.is_ready, state.cwd) == (True, str(stage.workspace))


async def test_a_runner_works_in_its_own_workspace_and_no_other(stage: Stage) -> None:
    with pytest.raises(CallerError, match="leave one of them out"):
        async with hosting(stage, DONE, workspace=stage.directory):
            pass


async def test_a_session_that_the_journal_does_not_have_is_not_made_up(stage: Stage) -> None:
    async with hosting(stage, DONE) as runtime:
        drained = await runtime.drain()
    kept = drained.manifest.runtime.session_file
    assert isinstance(kept, str)
    Path(kept).unlink()
    other = Stage(stage.directory / "other")
    with pytest.raises(NotFound):
        async with hosting(
            other, runner=identity(stage), restore=drained.manifest_path, model=stage.scenario(DONE)
        ):
            pass
    with pytest.raises(CallerError, match="cannot be read"):
        async with hosting(stage, restore=str(stage.directory / "nowhere.json")):
            pass


async def test_a_manifest_of_another_make_gives_a_new_session_its_id_state_and_cursor(
    stage: Stage,
) -> None:
    manifest = foreign()
    manifest["runtime"]["session_file"] = "/somewhere/else/.maestro/agent/sessions/session.jsonl"
    manifest["snapshot"]["last_init"] = {"type": "init", "approval_mode": "fail"}
    name = written(stage.workspace, manifest)
    model = stage.scenario([bash("echo no > no.txt", "c1")], DONE, AGAIN)
    for expected in ("Done.", "Again."):
        env = {UNSIGNED: "1"}
        place = str(stage.workspace / name)
        async with hosting(stage, model=model, restore=place, env=env) as runtime:
            snapshot = is_valid(runtime.state())
            assert (snapshot["session_id"], snapshot["cursor"]) == ("sess_old", 7)
            async with attending(runtime) as controller:
                said = await controller.prompt("go on")
                first = controller.heard[0]
                assert (first["type"], first["reason"]) == ("reset", "restored_from_snapshot")
                assert min(controller.cursors) > 7
            assert expected in [one.get("content") for one in said]
    assert not (stage.workspace / "no.txt").exists(), "the mode of the manifest's init holds"


async def test_a_session_is_gone_on_with_after_its_process_left_without_a_word(
    stage: Stage,
) -> None:
    """A manifest is for who is drained; any earlier session can be resumed."""
    model = stage.scenario(DONE, AGAIN)
    async with hosting(stage, model=model) as runtime, attending(runtime) as controller:
        await controller.prompt()
        session_id = runtime.session_id
    async with hosting(stage, resume=session_id) as runtime, attending(runtime) as controller:
        assert runtime.session_id == session_id
        assert (await replay(runtime)).of("ready")
        said = await controller.prompt("go on")
        assert any(one.get("content") == "Again." for one in said)
    bound = identity(stage, maestro_session_id=session_id)
    async with hosting(stage, runner=bound) as runtime:  # a runner that was started for it
        assert runtime.session_id == session_id
    journal = stage.journal()
    for run in await journal.runs(session_id=session_id):
        assert [fact async for fact in facts_of(journal, run.run_id)]
    journal.close()
