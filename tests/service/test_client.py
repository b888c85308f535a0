"""`batten.client.connect`: a service used from a program, with and without `async`."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from batten.client import (
    CallerError,
    Conflict,
    NoReply,
    NotFound,
    PeerError,
    ServerRefused,
    Unreachable,
    connect,
    sync,
)
from batten.contract.envelope import Envelope
from batten.contract.facts import ApprovalRequested, RunFinished
from tests.agent.stage import bash, call, end, say
from tests.service.commanding import batten
from tests.service.serving import PATIENCE_S, Service, serving
from tests.service.strange_server import strange_server


async def test_a_run_is_asked_listed_and_read(tmp_path: Path) -> None:
    async with serving(tmp_path, "--auto-allow") as service, connect(service.url) as server:
        model = service.stage.scenario([bash("echo hi", "c1")], [say("All done."), end()])
        workspace = service.stage.workspace

        result = await server.ask("go", model=model, workspace=workspace)

        assert (result.outcome, result.text) == ("completed", "All done.")
        assert (result.tools_used, result.calls_succeeded) == (("bash",), 1)
        (info,) = await server.runs(workspace=workspace)
        assert info == await server.run(result.run_id)
        assert (info.state, info.prompt, info.turns) == ("completed", "go", 2)
        events = [event async for event in server.events(result.run_id)]
        assert [event.sequence for event in events] == list(range(len(events)))
        later = [event async for event in server.events(result.run_id, after=3)]
        assert later == events[4:]
        (output,) = await server.artifacts(result.run_id)
        assert await server.body(output.artifact_id) == b"hi\n"
        assert (await service.ask("DELETE", f"/artifacts/{output.artifact_id}")).status == 204
        assert await server.artifacts(result.run_id) == []
        with pytest.raises(NotFound):
            await server.run("run_nope")


@pytest.mark.own_service
async def test_requests_are_answered_while_events_are_followed_through_a_restart(
    service: Service,
) -> None:
    model = service.stage.scenario([bash("echo hi", "c1")], [say("Done."), end()])
    port = service.url.rpartition(":")[2]
    async with asyncio.timeout(PATIENCE_S), connect(service.url) as server:
        run_id = await server.start("go", model=model, workspace=service.stage.workspace)
        seen: list[Envelope] = []
        async with aclosing(server.events(run_id, follow=True)) as events:
            async for event in events:
                seen.append(event)
                if isinstance(event.data, ApprovalRequested):
                    await service.kill()
                    await service.start("--port", port)
                    (request,) = await server.requests(run_id)
                    await server.allow(request, "fine")
                    with pytest.raises(Conflict):
                        await server.deny(request)
        assert isinstance(seen[-1].data, RunFinished)
        assert [event.sequence for event in seen] == list(range(len(seen)))
        assert await server.requests() == []


async def test_a_run_is_continued_and_cancelled(service: Service) -> None:
    model = service.stage.scenario([say("One."), end()], [bash("echo hi", "c1")])
    async with asyncio.timeout(PATIENCE_S), connect(service.url) as server:
        first = await server.ask("go", model=model, workspace=service.stage.workspace)

        second = await server.go_on(first.run_id, "on")
        await server.cancel(second, "enough")

        assert (await server.result(second)).outcome == "cancelled"


async def test_changes_are_shown_as_the_command_shows_them(tmp_path: Path) -> None:
    async with serving(tmp_path, "--auto-allow") as service, connect(service.url) as server:
        first = call("write_file", "c1", path="new.txt", content="one\n")
        second = call("edit_file", "c2", path="new.txt", old_string="one", new_string="two")
        model = service.stage.scenario([first], [second], [say("Done."), end()])

        result = await server.ask("go", model=model, workspace=service.stage.workspace)

        shown = await batten(service, "diff", result.run_id)
        assert shown.out.count(b"+++ ") == 2
        assert await server.diff(result.run_id) == shown.out
        assert await server.diff(result.run_id, proposed=True) == b""
        await batten(service, "revert", result.run_id)
        assert await server.diff(result.run_id) == b""


async def test_proposed_changes_are_shown(tmp_path: Path) -> None:
    async with serving(tmp_path, "--auto-allow", "--review") as service:
        edit = call("write_file", "c1", path="new.txt", content="one\n")
        model = service.stage.scenario([edit], [say("Done."), end()])
        async with connect(service.url) as server:
            result = await server.ask("go", model=model, workspace=service.stage.workspace)

            shown = await batten(service, "diff", result.run_id, "--proposed")
            assert b"+one" in shown.out
            assert await server.diff(result.run_id, proposed=True) == shown.out
            assert await server.diff(result.run_id) == b""


async def test_a_grant_for_the_session_lets_the_same_call_pass(service: Service) -> None:
    model = service.stage.scenario(
        [bash("echo hi", "c1")], [bash("echo hi", "c2")], [say("Done."), end()]
    )
    async with asyncio.timeout(PATIENCE_S), connect(service.url) as server:
        run_id = await server.start("go", model=model, workspace=service.stage.workspace)
        asked = 0
        async with aclosing(server.events(run_id, follow=True)) as events:
            async for event in events:
                if isinstance(event.data, ApprovalRequested):
                    asked += 1
                    (request,) = await server.requests(run_id)
                    await server.allow(request, scope="session")

        assert (asked, (await server.result(run_id)).calls_succeeded) == (1, 2)


async def test_without_async_the_same_is_done(service: Service) -> None:
    edit = call("write_file", "c1", path="new.txt", content="one\n")
    model = service.stage.scenario([edit], [say("Done."), end()], [bash("rm x", "c2")])

    def use() -> None:
        with sync.connect(service.url) as server:
            run_id = server.start("go", model=model, workspace=service.stage.workspace)
            for event in server.events(run_id, follow=True):
                if isinstance(event.data, ApprovalRequested):
                    (request,) = server.requests(run_id)
                    server.allow(request)
                    with pytest.raises(Conflict):
                        server.deny(request)
            result = server.result(run_id)
            assert (result.text, server.runs()[0].run_id) == ("Done.", run_id)
            assert server.run(run_id).state == "completed"
            assert b"+one" in server.diff(run_id)
            (patch,) = server.artifacts(run_id)
            assert server.body(patch.artifact_id) == server.diff(run_id)
            second = server.go_on(run_id, "on")
            server.cancel(second, "enough")
            assert server.result(second).outcome == "cancelled"

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.to_thread(use)


async def test_errors_have_their_types() -> None:
    async with connect("http://127.0.0.1:9") as server:
        with pytest.raises(Unreachable):
            await server.runs()
    async with strange_server("page") as url, connect(url) as server:
        with pytest.raises(PeerError):
            await server.runs()
    async with strange_server("hanging") as url, connect(url, silent_s=0.2) as server:
        with pytest.raises(NoReply):
            await server.runs()
    with pytest.raises(CallerError, match="no address of a service"):
        async with connect("nonsense"):
            pass
    with pytest.raises(CallerError, match="is for `batten -p`"):
        async with connect("local"):
            pass


@pytest.mark.own_service
async def test_the_socket_below_the_home_needs_no_key(service: Service) -> None:
    await batten(service, "keys", "create", "watcher", "--scope", "viewer")

    async with connect(f"unix:{service.stage.home}/serve.sock") as server:
        assert await server.runs() == []


@pytest.mark.own_service
async def test_a_refused_key_is_told_with_its_code(service: Service) -> None:
    async with connect(service.url, key="btn_wrong") as server:
        await server.runs()  # no key is wanted as long as there is none
    await batten(service, "keys", "create", "watcher", "--scope", "viewer")
    async with connect(service.url, key="btn_wrong") as server:
        with pytest.raises(ServerRefused) as refused:
            await server.runs()
    assert (refused.value.code, refused.value.status) == ("unauthorized", 401)
