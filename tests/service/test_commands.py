"""Commands against a service show what they show of the local journal."""

import asyncio
from pathlib import Path

import pytest

from tests.agent.stage import Stage, bash, call, end, say
from tests.service.commanding import Printed, batten, started
from tests.service.serving import PATIENCE_S, Service, serving
from tests.service.strange_server import strange_server


async def both(service: Service, *argv: str) -> tuple[Printed, Printed]:
    """The output of a command against the service, and against its journal."""
    return await batten(service, *argv, server=service.url), await batten(service, *argv)


async def changed(service: Service) -> str:
    """A run that has changed a file and run a command; its id."""
    edit = call("write_file", "c1", path="new.txt", content="one\ntwo\n")
    model = service.stage.scenario([edit], [bash("echo hi", "c2")], [say("All done."), end()])
    run = await service.started(model, "change it")
    assert (await run.ended())["status"] == "completed"
    return run.run_id


async def test_reading_commands_show_the_same_as_of_the_journal(tmp_path: Path) -> None:
    async with serving(tmp_path, "--auto-allow") as service:
        run_id = await changed(service)
        artifacts = (await batten(service, "artifacts", "last", "--json")).lines
        patch = next(one["artifact_id"] for one in artifacts if one["kind"] == "patch")
        for argv in (
            ("runs",),
            ("runs", "--json", "--limit", "1"),
            ("runs", "--grep", "CHANGE", "--status", "completed"),
            ("runs", "--run", run_id[:12]),
            ("show", "last"),
            ("events", run_id),
            ("events", "last", "--after", "3", "--follow"),
            ("artifacts", "last"),
            ("artifacts", patch),
            ("diff", run_id),
            ("requests",),
        ):
            remote, local = await both(service, *argv)
            assert (remote.code, remote.out) == (local.code, local.out), (argv, remote.err)
            assert remote.out or argv == ("requests",)


async def test_an_artifact_that_was_deleted_is_listed_and_shown_no_more(tmp_path: Path) -> None:
    async with serving(tmp_path, "--auto-allow") as service:
        await changed(service)
        before = (await batten(service, "artifacts", "last", "--json")).lines
        output = next(one["artifact_id"] for one in before if one["kind"] == "command_output")
        assert (await service.ask("DELETE", f"/artifacts/{output}")).status == 204
        for printed in await both(service, "artifacts", "last", "--json"):
            assert [one["artifact_id"] for one in printed.lines] == [
                one["artifact_id"] for one in before if one["artifact_id"] != output
            ]
        for printed in await both(service, "artifacts", output):
            assert (printed.code, printed.out) == (66, b"")
            assert "no artifact is named" in printed.err


async def test_a_request_is_listed_and_answered_through_the_service(service: Service) -> None:
    model = service.stage.scenario([bash("echo ran > proof", "c1")], [say("Done."), end()])
    run = await service.started(model)
    await run.until("approval.requested")
    remote, local = await both(service, "requests")
    assert remote.out == local.out
    assert b"echo ran > proof" in remote.out

    answered = await batten(service, "answer", "last", "allow", server=service.url)

    assert (answered.code, answered.out.split()[1]) == (0, b"approved"), answered.err
    assert (await run.ended())["status"] == "completed"
    again = await batten(service, "answer", "last", "allow", server=service.url)
    assert (again.code, again.err) == (66, "batten: no request is pending\n")


async def test_a_denied_request_lets_the_run_go_on_as_it_does_locally(service: Service) -> None:
    model = service.stage.scenario([bash("echo ran > proof", "c1")], [say("Done."), end()])
    run = await service.started(model)
    await run.until("approval.requested")

    answered = await batten(service, "answer", run.run_id, "deny", server=service.url)

    assert (answered.code, answered.out.split()[1]) == (0, b"rejected"), answered.err
    assert (await run.ended())["status"] == "completed"
    assert not (service.stage.workspace / "proof").exists()


async def test_a_run_is_cancelled_through_the_service(service: Service) -> None:
    model = service.stage.scenario([bash("echo ran", "c1")], [say("Done."), end()])
    run = await service.started(model)
    await run.until("approval.requested")

    cancelled = await batten(service, "--server", service.url, "cancel", "last")

    assert (cancelled.code, cancelled.out) == (0, f"{run.run_id}: cancel requested\n".encode())
    assert (await run.ended())["status"] == "cancelled"
    again = await batten(service, "cancel", "last", server=service.url)
    assert (again.code, again.err) == (1, f"batten: {run.run_id} has ended: cancelled\n")


@pytest.mark.own_service
@pytest.mark.parametrize("command", ["events", "show"])
async def test_following_goes_on_by_cursor_through_a_restart(
    service: Service, command: str
) -> None:
    model = service.stage.scenario([bash("echo ran", "c1")], [say("Done."), end()])
    run = await service.started(model)
    await run.until("approval.requested")
    follower = await started(service, command, "last", "--follow", server=service.url)
    assert follower.stdout is not None
    lines = [await asyncio.wait_for(follower.stdout.readline(), PATIENCE_S)]
    port = service.url.rpartition(":")[2]

    await service.kill()
    await _refused(int(port), times=4)
    await service.start("--port", port)
    await batten(service, "answer", "last", "allow", server=service.url)

    async with asyncio.timeout(PATIENCE_S):
        rest, err = await follower.communicate()
    assert follower.returncode == 0, err.decode()
    stored = await batten(service, command, "last")
    assert b"".join(lines) + rest == stored.out


async def _refused(port: int, times: int) -> None:
    """Take connections in the place of the service and close them, so many times."""
    seen = asyncio.Semaphore(0)

    def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        seen.release()

    async with (
        asyncio.timeout(PATIENCE_S),
        await asyncio.start_server(refuse, "127.0.0.1", port),
    ):
        for _ in range(times):
            await seen.acquire()


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        ("page", 1, "is no service of Batten"),
        ("other_json", 1, "is no service of Batten"),
        ("no_http", 1, "is no service of Batten"),
        ("failing", 1, "a gateway answers for it, with status 502: 'no!'"),
    ],
)
async def test_what_is_no_service_is_told_apart(
    tmp_path: Path, kind: str, code: int, words: str
) -> None:
    service = Service(Stage(tmp_path), ())
    async with strange_server(kind) as url:
        for argv in (("runs",), ("-p", "hi")):
            ended = await batten(service, *argv, server=url)
            assert (ended.code, ended.out) == (code, b"")
            assert words in ended.err
            assert "Traceback" not in ended.err


async def test_a_service_that_hangs_is_given_up(tmp_path: Path) -> None:
    service = Service(Stage(tmp_path), ())
    async with strange_server("hanging") as url:
        ended = await batten(
            service, "runs", server=url, environ={"BATTEN_SERVER_TIMEOUT_S": "0.3"}
        )

    assert (ended.code, ended.err) == (1, f"batten: the service at {url} was silent for 0.3 s\n")


async def test_a_service_that_is_not_there_is_named_with_the_remedy(tmp_path: Path) -> None:
    service = Service(Stage(tmp_path), ())

    ended = await batten(service, "runs", server="http://127.0.0.1:9")

    assert ended.code == 1
    assert ended.err.startswith("batten: no service answers at http://127.0.0.1:9: ")
    assert "`batten serve` starts one" in ended.err


@pytest.mark.parametrize("address", ["nonsense", "ftp://host", "http://", "http://h:x"])
async def test_a_wrong_address_is_a_usage_error(tmp_path: Path, address: str) -> None:
    ended = await batten(Service(Stage(tmp_path), ()), "runs", server=address)

    assert (ended.code, "is no address of a service" in ended.err) == (64, True)


@pytest.mark.parametrize("argv", [("runs",), ("-p", "hi")])
async def test_an_empty_address_starts_nothing_here(tmp_path: Path, argv: tuple[str, ...]) -> None:
    ended = await batten(Service(Stage(tmp_path), ()), *argv, "--server", "")

    assert (ended.code, "--server needs the address" in ended.err) == (64, True)


@pytest.mark.own_service
async def test_a_key_is_needed_and_its_scope_counts(service: Service, tmp_path: Path) -> None:
    made = await batten(service, "keys", "create", "watcher", "--scope", "viewer")
    key = made.out.split()[-1].decode()
    (tmp_path / "key").write_text(f"{key}\n")

    elsewhere = {"BATTEN_HOME": str(tmp_path / "elsewhere")}

    own = await batten(service, "runs", server=service.url)
    without = await batten(service, "runs", server=service.url, environ=elsewhere)
    given = await batten(service, "runs", server=service.url, environ={"BATTEN_SERVER_KEY": key})
    filed = await batten(
        service, "runs", "--server", service.url, "--server-key-file", str(tmp_path / "key")
    )
    weak = await batten(service, "-p", "hi", server=service.url, environ={"BATTEN_SERVER_KEY": key})

    assert own.code == 0, own.err  # with the token of the home
    assert (without.code, "valid key" in without.err) == (1, True)
    assert (given.code, filed.code) == (0, 0), given.err + filed.err
    assert (weak.code, "needs the scope operator" in weak.err) == (1, True)
