"""What the protocol says of events, read from a running service as a client reads it."""

import hashlib
import sys
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from tests.agent.stage import bash, call, end, fail, say
from tests.service.serving import Json, Run, Service, serving
from tests.service.streaming import all_frames
from tests.tools import mcp_servers
from tests.tools.web_server import web_server

ENDINGS = ("tool.completed", "tool.failed", "tool.cancelled", "tool.timed_out")
SECRET = "ghp_" + "x7Qm2Zk9Lp4Rt6Vw8Ys1Bn3Cd5Fg0HjKaEuI"


@pytest.fixture(scope="module")
def flags() -> tuple[str, ...]:
    return ("--auto-allow",)


def busy(service: Service) -> str:
    """A model that calls tools of many kinds."""
    (service.stage.workspace / "a.txt").write_text("one\ntwo\n")
    return service.stage.scenario(
        [say("Let me see."), bash("echo out; echo err >&2", "c1"), bash("exit 3", "c2")],
        [
            call("edit_file", "c3", file_path="a.txt", old_string="two", new_string="2"),
            call("write_file", "c4", file_path="b.txt", content="new\n"),
            call("read_file", "c5", file_path="a.txt"),
        ],
        [
            call("glob", "c6", pattern="*.txt"),
            call("grep", "c7", pattern="one"),
            call("todo_write", "c8", todos=[{"content": "all of it", "status": "pending"}]),
            call("nothing_of_this_name", "c9"),
        ],
        [say("That is all."), end()],
    )


def of_call(events: list[Json], call_id: str) -> list[Json]:
    return [
        event
        for event in events
        if event["type"].startswith("tool.") and event["data"].get("tool_call_id") == call_id
    ]


async def test_line_28_a_task_is_created_and_started(service: Service) -> None:
    asked = {"prompt": "go", "requested_model": service.stage.scenario([say("done")])}
    created = await service.ask("POST", "/tasks", asked)
    assert (created.status, created.json["object"]) == (200, "task")
    task = created.json["data"]
    assert (task["status"], "latest_run_id" in task) == ("queued", False)
    started = await service.ask("POST", f"/tasks/{task['id']}/start")
    assert (started.status, started.json["object"]) == (200, "task_run")
    assert (started.json["data"]["status"], started.json["data"]["number"]) == ("queued", 1)
    assert len(started.headers["x-trace-id"]) == 32
    assert len(started.headers["x-span-id"]) == 16


async def test_line_34_a_cancel_of_an_ended_run_changes_nothing(service: Service) -> None:
    run = await service.started(service.stage.scenario([say("done")]))
    ended = await run.ended()
    for body in (None, {"reason": "too late"}):
        answer = await service.ask("POST", f"{run.path}/cancel", body)
        assert (answer.status, answer.json["data"]) == (200, ended)


async def test_lines_43_59_63_and_64_every_call_is_told_from_its_beginning_to_one_end(
    service: Service,
) -> None:
    run = await service.started(busy(service))
    assert (await run.ended())["status"] == "completed"
    events = await run.events()
    assert [event["sequence"] for event in events] == list(range(len(events)))
    for number in range(1, 10):
        told = [event["type"] for event in of_call(events, f"c{number}")]
        assert told[0] == "tool.invoked"
        assert [type_ for type_ in told if type_ in ENDINGS] == told[-1:]
        for event in of_call(events, f"c{number}"):
            assert event["data"]["tool_name"]
    order = [event["type"] for event in of_call(events, "c1")]
    assert order == [
        *("tool.invoked", "tool.started", "tool.shell.command"),
        *("tool.shell.output_chunk", "tool.shell.output_chunk"),
        *("tool.shell.exited", "tool.completed"),
    ]
    assert of_call(events, "c2")[-1]["type"] == "tool.failed"
    deltas = [e["data"]["delta"] for e in events if e["type"] == "assistant.text_delta"]
    texts = [e["data"]["text"] for e in events if e["type"] == "assistant.text_complete"]
    assert "".join(deltas) == "".join(texts) == "Let me see.That is all."


@pytest.mark.own_service
async def test_line_60_events_have_the_same_bytes_everywhere_and_after_a_restart(
    service: Service,
) -> None:
    run = await service.started(busy(service))
    await run.ended()

    async def listed() -> bytes:
        return (await service.ask("GET", f"{run.path}/events?limit=500")).body

    before = await listed()
    frames = await all_frames(service, f"{run.path}/events")
    joined = ",".join(frame.data for frame in frames)
    assert before == b'{"object":"list","data":[' + joined.encode() + b"]}"
    assert [frame.id for frame in frames] == [str(number) for number in range(len(frames))]
    assert {frame.event for frame in frames} == {""}
    await service.kill()
    await service.start()
    assert hashlib.sha256(await listed()).digest() == hashlib.sha256(before).digest()
    feed = (await service.ask("GET", f"/events?limit=500&task_id={run.task_id}")).body
    assert joined.encode() in feed


async def test_lines_38_and_61_a_reader_goes_on_after_what_it_has(service: Service) -> None:
    run = await service.started(busy(service))
    await run.ended()
    path, count = f"{run.path}/events", len(await run.events())
    for query, headers, first in (
        ("", {"Last_Event_ID": "4"}, 5),
        ("?after_sequence=7", {}, 8),
        ("?after_sequence=2", {"Last_Event_ID": "9"}, 10),
        ("?after_sequence=9", {"Last_Event_ID": "2"}, 10),
        ("", {"Last_Event_ID": "0"}, 1),
    ):
        frames = await all_frames(service, path + query, **headers)
        assert [int(frame.id) for frame in frames] == list(range(first, count))


@pytest.mark.own_service
async def test_line_41_the_feed_is_selected_and_paged(service: Service) -> None:
    model = service.stage.scenario([say("done")])
    runs = [await service.started(model) for _ in range(2)]
    for run in runs:
        await run.ended()
    wanted = "event_type=run.queued,%20run.finished"
    mine = f"/events?{wanted}&task_id={runs[0].task_id}"
    found = await service.get(mine)
    assert [event["type"] for event in found] == ["run.queued", "run.finished"]
    assert {event["task_id"] for event in found} == {runs[0].task_id}
    pages: list[list[str]] = []
    after = -1
    while True:
        page = (await service.ask("GET", f"/events?limit=5&after_sequence={after}")).json
        if not page["data"]:
            assert "next_after_sequence" not in page
            break
        pages.append([event["event_id"] for event in page["data"]])
        after = page["next_after_sequence"]
    ids = [event_id for page in pages for event_id in page]
    assert len(ids) == len(set(ids)) == sum([len(await run.events()) for run in runs])
    for nothing in ("task_id=nonesuch", "event_type=no.such"):
        answer = await service.ask("GET", f"/events?{nothing}")
        assert answer.json == {"object": "events", "data": []}
    for bad in ("after_sequence=x", "after_sequence=-2", "limit=0", "limit=x"):
        answer = await service.ask("GET", f"/events?{bad}")
        assert (answer.status, answer.error["type"]) == (400, "invalid_request")


async def test_line_47_an_error_of_the_model_fails_the_run(service: Service) -> None:
    run = await service.started(service.stage.scenario([fail("fatal", "no such model")]))
    assert (await run.ended())["status"] == "failed"
    failed = (await run.until("run.failed"))["data"]
    assert failed["code"]
    assert "no such model" in failed["message"]
    assert failed["retriable"] is False


async def test_line_65_a_planted_secret_is_in_no_event(tmp_path: Path) -> None:
    environ = {"PLANTED_TOKEN": SECRET[4:] + "zz"}
    async with serving(tmp_path, "--auto-allow", environ=environ) as service:
        line = f"echo {SECRET}; echo {environ['PLANTED_TOKEN']}; env"
        model = service.stage.scenario([bash(line, "c1")], [say(f"It is {SECRET}."), end()])
        run = await service.started(model, f"Use {SECRET}")
        await run.ended()
        stored = (await service.ask("GET", f"{run.path}/events?limit=500")).body
        states = "".join(frame.data for frame in await all_frames(service, f"{run.path}/stream"))
        for planted in (SECRET, *environ.values()):
            assert planted.encode() not in stored
            assert planted not in states
        command = next(e for e in await run.events() if e["type"] == "tool.shell.command")
        assert "PLANTED_TOKEN" not in command["data"]["env_keys"]


@pytest.mark.parametrize("is_asked", [False, True])
async def test_line_65_a_credential_of_a_request_is_sent_and_in_no_event(
    tmp_path: Path, is_asked: bool
) -> None:
    word = "Bearer not-a-known-format"
    async with web_server() as server:
        environ = {"BATTEN_HTTP_ALLOW": "127.0.0.1"}
        flags = () if is_asked else ("--auto-allow",)
        async with serving(tmp_path, *flags, environ=environ) as service:
            url = server.page("/a", b"hello")
            headers = {"Authorization": word, "Accept": "text/plain"}
            asked = call("http_request", "c1", url=url, headers=headers)
            run = await service.started(service.stage.scenario([asked], [say("done")]))
            if is_asked:
                approval = await run.approval()
                assert word not in str(approval)
                await run.resolve(approval["id"], "approve")
            await run.ended()
            events = await run.events()
    assert f"Authorization: {word}".encode() in server.requests[0]
    assert word not in str(events)
    (proposed,) = [e["data"] for e in events if e["type"] == "assistant.tool_call_proposed"]
    assert proposed["redacted_paths"] == ["input.headers.Authorization"]
    assert proposed["input"]["headers"] == {"Authorization": "<redacted>", "Accept": "text/plain"}
    (requested,) = [e["data"] for e in events if e["type"] == "tool.http.requested"]
    assert requested["header_keys"] == ["Authorization", "Accept"]


async def test_a_picture_of_a_tool_is_one_artifact_that_the_call_s_end_names(
    tmp_path: Path,
) -> None:
    calls = [call("mcp__tiny__picture", "c1"), call("read_file", "c2", file_path="a.png")]
    tiny = {"name": "tiny", "command": sys.executable, "args": [mcp_servers.__file__, "stdio"]}
    flags = ("--auto-allow", "--sandbox", "auto", "--allow-mcp-servers", "sandboxed")
    async with serving(tmp_path, *flags) as service:
        (service.stage.workspace / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
        model = service.stage.scenario(calls, [say("done")])
        run = await service.started(model, mcp_servers=[tiny])
        await run.ended()
        events = await run.events()
    for call_id, summary in (
        ("c1", "[image/png, 9 bytes]"),
        ("c2", "Image a.png (image/png, 8 bytes)"),
    ):
        (kept,) = [
            event["data"]
            for event in events
            if event["type"] == "artifact.created" and event["data"]["tool_call_id"] == call_id
        ]
        ended = of_call(events, call_id)[-1]["data"]
        assert (kept["kind"], kept["summary"]) == ("image", summary)
        assert ended["summary"] == summary
        assert ended["result_artifact_id"] == kept["artifact_id"]
        assert ended["image_artifact_ids"] == [kept["artifact_id"]]


async def test_the_summary_of_an_artifact_has_one_line_whatever_its_file_is_called(
    service: Service,
) -> None:
    wrote = call("write_file", "c1", file_path="one\ntwo.txt", content="new\n")
    run = await service.started(service.stage.scenario([wrote], [say("done")]))
    await run.ended()
    made = [e["data"] for e in await run.events() if e["type"] == "artifact.created"]
    assert [fact["summary"] for fact in made] == [
        "exact patch of one⏎two.txt",
        "one⏎two.txt: new file, 1 line",
    ]


async def test_line_69_a_resumed_run_begins_with_where_it_comes_from(service: Service) -> None:
    run = await service.started(service.stage.scenario([fail("fatal", "boom")]))
    await run.ended()
    last = (await run.events())[-1]
    again: Json = await service.post(f"{run.path}/resume", {"reason": "once more"})
    events = await Run(service, run.task_id, again["id"]).events()
    assert [event["type"] for event in events[:2]] == ["run.resumed_from_event", "run.queued"]
    assert events[0]["sequence"] == 0
    assert events[0]["data"] == {
        "from_run_id": run.run_id,
        "from_sequence": last["sequence"],
        "prior_cost_micros_usd": 0,
        "reason": "once more",
    }
    assert events[1]["data"]["prior_run_id"] == run.run_id


async def test_output_is_told_in_chunks_whose_offsets_are_true_to_the_byte(
    service: Service,
) -> None:
    line = "for i in $(seq 3000); do printf 'héé%d ' $i; done"
    run = await service.started(service.stage.scenario([bash(line, "c1")], [say("done")]))
    await run.ended()
    events = await run.events()
    chunks = [e["data"] for e in events if e["type"] == "tool.shell.output_chunk"]
    assert chunks[0]["byte_offset"] == 0
    for one, following in pairwise(chunks):
        assert following["byte_offset"] == one["byte_offset"] + len(one["data"].encode())
    exited = next(e["data"] for e in events if e["type"] == "tool.shell.exited")
    total = chunks[-1]["byte_offset"] + len(chunks[-1]["data"].encode())
    assert (exited["stdout_bytes"], exited["truncated"]) == (total, False)


async def test_a_body_that_says_too_little_is_told_what_would_be_right(service: Service) -> None:
    for asked, words in (
        ({"prompt": "x", "execution_kind": "dance"}, "agent_loop, file, git, shell"),
        ({"prompt": "x", "priority": 7}, "expected a string"),
        ({"prompt": "x", "mcp_servers": [{"name": "a b", "command": "x"}]}, "single underscores"),
    ):
        answer = await service.ask("POST", "/tasks", asked)
        assert (answer.status, answer.error["type"]) == (400, "invalid_request")
        assert words in answer.error["message"], msgspec.json.encode(asked)
