"""`batten -p --server URL`: the service executes the run, the process shows it."""

import asyncio
import signal

import pytest

from tests.agent.stage import bash, end, say
from tests.ports import free_port
from tests.service.commanding import batten, started
from tests.service.serving import PATIENCE_S, Service


@pytest.fixture(scope="module")
def flags() -> tuple[str, ...]:
    return ("--auto-allow",)


async def test_the_answer_and_the_result_are_those_of_a_local_run(service: Service) -> None:
    model = service.stage.scenario([bash("echo hi", "c1")], [say("All done."), end()])
    argv = ("-p", "go", "--model", model, "--output-format")

    text = await batten(service, *argv, "text", server=service.url)
    json = await batten(service, *argv, "json", server=service.url)
    frames = await batten(service, *argv, "stream-json", server=service.url)
    local = await batten(service, *argv, "stream-json", "--auto-allow", "--sandbox", "none")

    assert (text.code, text.out) == (0, b"All done.\n"), text.err
    (result,) = json.lines
    assert (result["subtype"], result["result"], result["turns"]) == ("success", "All done.", 2)
    assert [_kind(frame) for frame in frames.lines] == [_kind(frame) for frame in local.lines]
    assert _plain(frames.lines[1:]) == _plain(local.lines[1:])
    assert frames.lines[0]["server"] == service.url


def _kind(frame: dict[str, object]) -> object:
    return (frame["type"], frame.get("subtype"))


def _plain(frames: list[dict[str, object]]) -> list[dict[str, object]]:
    """Frames without ids and times."""
    left_out = {"session_id", "run_id", "duration_ms"}
    return [{k: v for k, v in frame.items() if k not in left_out} for frame in frames]


async def test_events_are_the_stored_bytes(service: Service) -> None:
    model = service.stage.scenario([say("All done."), end()])

    shown = await batten(
        service, "-p", "go", "--model", model, "--output-format", "events", server=service.url
    )

    stored = await batten(service, "events", "last")
    assert (shown.code, shown.out) == (0, stored.out)


async def test_a_failed_run_has_its_exit_code_and_reason(service: Service) -> None:
    ended = await batten(
        service, "-p", "go", "--model", "scripted//nowhere.json", server=service.url
    )

    assert ended.code == 78, ended.err
    assert "nowhere.json" in ended.err


async def test_a_conversation_goes_on_through_the_service(service: Service) -> None:
    model = service.stage.scenario([say("One."), end()], [say("Two."), end()])
    first = await batten(service, "-p", "go", "--model", model, server=service.url)

    second = await batten(service, "-p", "on", "--resume", "last", server=service.url)

    assert (first.out, second.out) == (b"One.\n", b"Two.\n"), second.err
    runs = (await batten(service, "runs", "--json")).lines
    assert runs[0]["session_id"] == runs[1]["session_id"]


async def test_only_a_conversation_of_the_present_directory_is_continued(service: Service) -> None:
    other = service.stage.directory / "other"
    other.mkdir()
    model = service.stage.scenario([say("One."), end()], [say("Two."), end()])
    await batten(service, "-p", "go", "--model", model, server=service.url)
    there = await started(service, "-p", "on", "--continue", server=service.url, cwd=other)
    _, err = await there.communicate()
    assert there.returncode == 66, err.decode()
    assert f"there is no session in {other} to continue" in err.decode()
    model = service.stage.scenario([say("Newer."), end()], name="newer")
    asked = ("-p", "go", "--model", model, "--workspace", str(other))
    await batten(service, *asked, server=service.url)

    here = await batten(service, "-p", "on", "--continue", server=service.url)

    assert here.out == b"Two.\n", here.err


@pytest.mark.own_service
async def test_ctrl_c_cancels_the_run_in_the_service(service: Service) -> None:
    model = service.stage.scenario([bash("mkfifo pipe; cat pipe", "c1")], [say("x"), end()])
    process = await started(
        service,
        *("-p", "go", "--model", model, "--output-format", "events"),
        server=service.url,
    )
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        while b'"tool.shell.command"' not in await process.stdout.readline():
            continue

        process.send_signal(signal.SIGINT)

        out, err = await process.communicate()
    assert process.returncode == 124, err.decode()
    assert b'"run.cancelled"' in out.splitlines()[-1]
    (run,) = (await batten(service, "runs", "--json")).lines
    assert run["outcome"] == "cancelled"


@pytest.mark.own_service
async def test_the_run_is_shown_through_a_restart_of_the_service(service: Service) -> None:
    await service.stop()
    port = str(free_port())
    await service.start("--port", port)
    model = service.stage.scenario([bash("echo hi", "c1")], [say("Done."), end()])
    process = await started(
        service, "-p", "go", "--model", model, "--output-format", "events", server=service.url
    )
    assert process.stdout is not None
    shown: list[bytes] = []
    async with asyncio.timeout(PATIENCE_S):
        while b'"approval.requested"' not in (shown[-1] if shown else b""):
            shown.append(await process.stdout.readline())

        await service.kill()
        await service.start("--port", port)
        await batten(service, "answer", "last", "allow", server=service.url)

        rest, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    stored = await batten(service, "events", "last")
    assert b"".join(shown) + rest == stored.out


@pytest.mark.own_service
async def test_a_flag_that_the_service_would_ignore_is_refused(service: Service) -> None:
    ended = await batten(service, "-p", "go", "--deny", "bash", server=service.url)

    assert ended.code == 64
    assert "cannot be used with --server" in ended.err
    assert (await batten(service, "runs", "--json")).out == b""
