"""Artifacts over REST: create, get, raw, pin, delete, list."""

import asyncio
import base64
import hashlib
from typing import Any

import pytest

from tests.agent.stage import bash, call, end, say
from tests.serve.http.wire import Answer
from tests.service.serving import Json, Run, Service
from tests.service.streaming import all_frames

DATA = bytes(range(256)) * 4


def upload(run: Run, data: bytes = DATA, **more: Any) -> Json:
    return {
        "kind": "tool_result_blob",
        "run_id": run.run_id,
        "body_base64": base64.b64encode(data).decode(),
        **more,
    }


async def ran(service: Service, *statements: Any) -> Run:
    """A run that has ended."""
    frames = [list(statements)] if statements else []
    model = service.stage.scenario(*frames, [say("Done."), end()])
    run = await service.started(model)
    await run.ended()
    return run


async def created(service: Service, run: Run, data: bytes = DATA, **more: Any) -> Json:
    answer = await service.ask("POST", "/artifacts", upload(run, data, **more))
    assert answer.status == 201, answer.body
    artifact: Json = answer.json["data"]
    return artifact


async def patch_of(service: Service, **fields: Any) -> tuple[Run, Json]:
    """A run that edited a file, and its patch."""
    (service.stage.workspace / "a.txt").write_text("one\ntwo\n")
    edit = call("edit_file", "e1", file_path="a.txt", old_string="two", new_string="2")
    run = await ran(service, edit)
    (patch,) = await service.get(f"{run.path}/artifacts?kind=patch")
    return run, patch


@pytest.fixture(scope="module")
def flags() -> tuple[str, ...]:
    return ("--auto-allow",)


async def test_a_patch_is_given_in_the_flat_shape_with_its_diff(service: Service) -> None:
    run, listed = await patch_of(service)
    digest = hashlib.sha256(b"one\ntwo\n").hexdigest()

    artifact = await service.get(f"/artifacts/{listed['id']}")

    assert "diff" not in listed
    assert {name: artifact[name] for name in ("kind", "status", "target_path")} == {
        "kind": "patch",
        "status": "applied",
        "target_path": "a.txt",
    }
    assert artifact["base_revision"].endswith(digest)
    assert artifact["diff"].splitlines()[-3:] == [" one", "-two", "+2"]
    assert artifact["stats"] == {"additions": 1, "deletions": 1, "hunks": 1}
    (applied,) = [e["data"] for e in await run.events() if e["type"] == "tool.edit.applied"]
    assert artifact["applied_at"] == applied["applied_at"]
    assert artifact["reverted_at"] is None
    assert artifact["produced_by_run_id"] == artifact["run_id"] == run.run_id
    assert artifact["produced_by_tool_call_id"] == "e1"
    assert artifact["task_id"] == run.task_id
    assert "sealed" not in str(artifact)
    of_run = await service.get(f"{run.path}/artifacts/{listed['id']}")
    assert of_run == artifact


async def test_a_client_adds_an_artifact_once(service: Service) -> None:
    run = await ran(service)

    first = await created(service, run, metadata={"tool_name": "t"}, summary="a blob")
    again = await service.ask("POST", "/artifacts", upload(run))

    assert (again.status, again.json["data"]["id"]) == (200, first["id"])
    assert (first["status"], first["size_bytes"]) == ("created", len(DATA))
    assert first["sha256"] == hashlib.sha256(DATA).hexdigest()
    assert first["metadata"] == {"tool_name": "t"}
    raw = await service.ask("GET", f"/artifacts/{first['id']}/raw")
    assert raw.body == DATA
    event = (await run.events())[-1]
    assert (event["type"], event["data"]["by"]) == ("artifact.created", "operator")
    assert "created_by_event_id" not in event["data"]


async def test_an_idempotency_key_finds_the_artifact_of_the_first_request(
    service: Service,
) -> None:
    run = await ran(service)
    key = {"Idempotency-Key": "k1"}

    answers = await asyncio.gather(
        *(
            service.ask("POST", "/artifacts", upload(run, b"%d" % number), key)
            for number in range(4)
        )
    )

    assert sorted(answer.status for answer in answers) == [200, 200, 200, 201]
    assert len({answer.json["data"]["id"] for answer in answers}) == 1
    assert "k1" not in str(answers[0].json)
    of_call = upload(run, b"a", tool_call_id="c7")
    first = await service.ask("POST", "/artifacts", of_call, {"Idempotency-Key": "k2"})
    other = upload(run, b"b", tool_call_id="c7")
    second = await service.ask("POST", "/artifacts", other, {"Idempotency-Key": "k3"})
    assert (first.status, second.status) == (201, 200)
    assert first.json["data"]["id"] == second.json["data"]["id"]
    assert (await service.ask("POST", "/artifacts", other)).status == 201


async def test_a_large_body_comes_and_goes_as_multipart_and_ranges(service: Service) -> None:
    run = await ran(service)
    data = DATA * 3000  # 3 MB
    metadata = b'{"kind":"image","mime_type":"image/png","run_id":"%b"}' % run.run_id.encode()
    body = (
        b'--x\r\nContent-Disposition: form-data; name="metadata"\r\n\r\n' + metadata + b"\r\n"
        b'--x\r\nContent-Disposition: form-data; name="body"; filename="a"\r\n'
        b"Content-Type: image/png\r\n\r\n" + data + b"\r\n--x--\r\n"
    )

    answer = await service.ask(
        "POST", "/artifacts", body, {"Content-Type": "multipart/form-data; boundary=x"}
    )

    assert answer.status == 201
    raw = f"/artifacts/{answer.json['data']['id']}/raw"
    whole = await service.ask("GET", raw)
    assert (whole.status, whole.headers["content-type"]) == (200, "image/png")
    assert whole.body == data
    head = await service.ask("HEAD", raw)
    assert (head.status, head.headers["content-length"]) == (200, str(len(data)))
    part = await service.ask("GET", raw, headers={"Range": "bytes=1000000-1999999"})
    assert (part.status, part.body) == (206, data[1_000_000:2_000_000])
    assert part.headers["content-range"] == f"bytes 1000000-1999999/{len(data)}"
    outside = await service.ask("GET", raw, headers={"Range": f"bytes={len(data)}-"})
    assert (outside.status, outside.error["code"]) == (416, "range_not_satisfiable")
    assert outside.headers["content-range"] == f"bytes */{len(data)}"
    etag = whole.headers["etag"]
    assert etag == f'"sha256:{hashlib.sha256(data).hexdigest()}"'
    same = await service.ask("GET", raw, headers={"If-None-Match": etag})
    assert (same.status, same.headers["etag"]) == (304, etag)


async def test_a_body_is_never_shown_as_a_page(service: Service) -> None:
    run = await ran(service)
    made = await created(service, run, b"<script>1</script>", mime_type="text/html")

    raw = await service.ask("GET", f"/artifacts/{made['id']}/raw")

    assert raw.headers["content-type"] == "text/html"
    assert raw.headers["content-disposition"] == "attachment"
    assert raw.headers["x-content-type-options"] == "nosniff"
    assert raw.headers["content-security-policy"].startswith("sandbox")


@pytest.mark.own_service
async def test_pinned_artifacts_cannot_be_deleted_and_deleted_ones_are_gone(
    service: Service,
) -> None:
    run = await ran(service)
    made = await created(service, run)
    path = f"/artifacts/{made['id']}"
    assert made["updated_at"] == made["created_at"]

    async def pin(value: Any) -> Answer:
        return await service.ask("PATCH", path, {"pinned": value})

    async def check_updated(pinned: Answer) -> None:
        """An artifact was updated when its last `artifact.updated` says, wherever it is shown."""
        at = (await run.events())[-1]["occurred_at"]
        listed = (await service.get("/artifacts"))[0]
        frames = await all_frames(service, f"{run.path}/stream")
        shown = frames[-1].json["data"]["artifacts"][-1]
        for one in (pinned.json["data"], await service.get(path), listed, shown):
            assert one["updated_at"] == at

    pinned = await pin(True)
    assert pinned.json["data"]["pinned"] is True
    await check_updated(pinned)
    assert (await pin(True)).status == 200
    refused = await service.ask("DELETE", path)
    assert (refused.status, refused.error["code"]) == (409, "artifact_pinned")
    assert len(await service.get("/artifacts?pinned=true")) == 1
    await service.kill()
    await service.start()
    assert (await service.get(path))["pinned"] is True
    unpinned = await pin(False)
    assert unpinned.json["data"]["pinned"] is False
    await check_updated(unpinned)
    assert (await service.ask("DELETE", path)).status == 204
    for method, what in (("GET", path), ("GET", f"{path}/raw"), ("DELETE", path)):
        gone = await service.ask(method, what)
        assert (gone.status, gone.error["type"]) == (404, "not_found")
    assert (await pin(True)).status == 404
    assert await service.get(f"{run.path}/artifacts") == []
    changes = [e["data"] for e in await run.events() if e["type"] == "artifact.updated"]
    assert [(c["field"], c["by"]) for c in changes] == [
        ("pinned", "operator"),
        ("pinned", "operator"),
        ("deleted_at", "operator"),
    ]
    status = await service.ask("PATCH", path, {"status": "applied"})
    assert status.status == 400

    # Its task is deleted with it, pinned or not.
    path = f"/artifacts/{(await created(service, run))['id']}"
    assert (await pin(True)).status == 200
    assert (await service.ask("DELETE", run.task_path)).status == 204
    assert (await service.ask("GET", path)).status == 404


@pytest.mark.own_service
async def test_lists_have_filters_and_cursors(service: Service) -> None:
    first, second = await ran(service), await ran(service)
    made = [await created(service, first, b"%d" % number) for number in range(5)]
    other = await created(service, second, b"other", kind="image")
    ids = [one["id"] for one in made]

    async def page(path: str) -> tuple[list[str], str | None]:
        answer = await service.ask("GET", path)
        assert answer.status == 200, answer.body
        whole: Json = answer.json
        assert whole["object"] == "list"
        assert whole["has_more"] is ("next_cursor" in whole)
        return [one["id"] for one in whole["data"]], whole.get("next_cursor")

    assert (await page("/artifacts"))[0] == [other["id"], *ids[::-1]]
    got, cursor = await page(f"{first.path}/artifacts?limit=2")
    assert got == ids[:2:-1]
    got, cursor = await page(f"{first.task_path}/artifacts?limit=2&cursor={cursor}")
    assert got == [ids[2], ids[1]]
    assert await page(f"/artifacts?limit=2&cursor={cursor}") == ([ids[0]], None)
    assert (await page("/artifacts?kind=image"))[0] == [other["id"]]
    assert (await page(f"/artifacts?task_id={second.task_id}"))[0] == [other["id"]]
    for nothing in ("status=proposed", "task_id=none", "run_id=none", "session_id=none"):
        assert (await page(f"/artifacts?{nothing}"))[0] == []
    at = made[2]["created_at"].replace("+", "%2B")
    after = (await page(f"/artifacts?created_after={at}"))[0]
    before = (await page(f"/artifacts?created_before={at}"))[0]
    assert made[2]["id"] not in after + before
    assert set(after) <= {other["id"], ids[3], ids[4]}
    for wrong in ("kind=sealed", "cursor=x", "limit=-1", "created_after=noon", "pinned=perhaps"):
        answer = await service.ask("GET", f"/artifacts?{wrong}")
        assert (answer.status, answer.error["field"]) == (400, wrong.partition("=")[0])


async def test_a_deleted_artifact_is_not_counted(service: Service) -> None:
    run = await ran(service)
    first, _ = [await created(service, run, body) for body in (b"one", b"two")]
    assert (await run.now())["artifact_count"] == 2
    assert (await service.ask("DELETE", f"/artifacts/{first['id']}")).status == 204
    assert (await run.now())["artifact_count"] == (await run.task())["artifact_count"] == 1


async def test_a_task_counts_the_artifacts_of_child_runs(service: Service) -> None:
    service.stage.scenario([bash("echo ran", "k")], [say("Done."), end()], name="child")
    turns = ([call("agent", "c", prompt="do it")], [say("Done."), end()])
    run = await service.started(
        service.stage.scenario(*turns, name="parent", children={"do it": "child.json"})
    )
    await run.ended()
    listed = await service.get(f"{run.task_path}/artifacts")
    assert [one["run_id"] == run.run_id for one in listed] == [False]
    assert (await run.task())["artifact_count"] == 1


async def test_an_artifact_of_another_run_or_task_is_not_found(service: Service) -> None:
    run, patch = await patch_of(service)
    other = await ran(service)

    async def missing(method: str, path: str, body: Any = None) -> bool:
        answer = await service.ask(method, path, body)
        return answer.status == 404

    assert await missing("GET", f"{other.path}/artifacts/{patch['id']}")
    assert await missing("GET", f"{other.task_path}/runs/{run.run_id}/artifacts/{patch['id']}")
    assert await missing("GET", f"{other.task_path}/runs/{run.run_id}/artifacts")
    assert await missing("GET", "/artifacts/art_01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert await missing("GET", "/artifacts/..%2F..%2Fkeys/raw")
    wrong = upload(run, task_id=other.task_id)
    assert await missing("POST", "/artifacts", wrong)
    unknown = upload(run) | {"run_id": "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"}
    assert await missing("POST", "/artifacts", unknown)


async def test_sealed_artifacts_never_leave(service: Service) -> None:
    run, patch = await patch_of(service)
    events = await run.events()
    sealed = [
        event["data"]["artifact_id"]
        for event in events
        if event["type"] == "artifact.created" and event["data"]["kind"] == "sealed"
    ]
    assert sealed
    for artifact_id in sealed:
        for path in (f"/artifacts/{artifact_id}", f"/artifacts/{artifact_id}/raw"):
            assert (await service.ask("GET", path)).status == 404
        assert (await service.ask("DELETE", f"/artifacts/{artifact_id}")).status == 404
    listed = [one["id"] for one in await service.get(f"{run.path}/artifacts")]
    assert patch["id"] in listed
    assert not set(sealed) & set(listed)


@pytest.mark.own_service
async def test_a_task_over_its_quota_takes_no_more_and_says_so_in_its_run(
    service: Service,
) -> None:
    await service.stop()
    service.stage.environ["BATTEN_TASK_ARTIFACT_MIB"] = "0.001"
    await service.start()
    run = await ran(service)
    await created(service, run, b"a" * 900)

    answer = await service.ask("POST", "/artifacts", upload(run, b"b" * 900))

    assert (answer.status, answer.error["type"]) == (429, "quota_exceeded")
    event = (await run.events())[-1]
    assert event["type"] == "gap.artifact_capped"
    assert (event["data"]["kept_bytes"], event["data"]["original_size_bytes"]) == (0, 900)
    await created(service, run, b"b" * 20)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"kind": "sealed"}, 400),
        ({"kind": "patch"}, 400),
        ({"body_base64": "%%"}, 400),
        ({"body_base64": base64.b64encode(bytes((1 << 20) + 1)).decode()}, 400),
        ({"mime_type": "text/plain\r\nX-Evil: 1"}, 400),
        ({"run_id": "../run"}, 400),
    ],
)
async def test_an_upload_that_does_not_fit_is_refused(
    service: Service, change: Json, status: int
) -> None:
    run = await ran(service)
    answer = await service.ask("POST", "/artifacts", upload(run) | change)
    assert (answer.status, answer.error["type"]) == (status, "invalid_request")
    assert await service.get(f"{run.path}/artifacts") == []


@pytest.mark.own_service
async def test_a_secret_in_an_uploaded_text_is_not_stored(service: Service) -> None:
    await service.stop()
    service.stage.environ["MY_API_KEY"] = "sekret-value-4711"
    await service.start()
    run = await ran(service)

    text = b"the key is sekret-value-4711"
    for kind, more in (
        ("tool_result_blob", {"mime_type": "text/plain"}),
        ("file_snapshot", {"mime_type": "Application/X-Thing"}),
        ("command_output", {}),
        ("patch", {"metadata": {"target_path": "new.txt"}}),
    ):
        data = b"--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+%b\n" % text
        made = await created(service, run, data if kind == "patch" else text, kind=kind, **more)
        assert "sekret-value" not in str(made)
        raw = await service.ask("GET", f"/artifacts/{made['id']}/raw")
        assert b"sekret-value" not in raw.body
        assert b"the key is <redacted>" in raw.body
        assert made["mime_type"] == more.get("mime_type", made["mime_type"])
        assert "octet-stream" not in made["mime_type"]


async def test_line_66_a_run_is_followed_without_artifact_ids(service: Service) -> None:
    (service.stage.workspace / "a.txt").write_text("one\n")
    run = await ran(
        service,
        call("edit_file", "e1", file_path="a.txt", old_string="one", new_string="1"),
        bash("echo shown", "b1"),
    )
    artifacts = [one["id"] for one in await service.get(f"{run.path}/artifacts")]

    steps: dict[str, str] = {}
    text = ""
    for event in await run.events():
        data = {name: value for name, value in event["data"].items() if "artifact" not in name}
        if event["type"].startswith("artifact."):
            continue
        assert not any(one in str(data) for one in artifacts)
        if event["type"] == "tool.invoked":
            steps[data["tool_call_id"]] = "running"
        elif event["type"] in ("tool.completed", "tool.failed"):
            steps[data["tool_call_id"]] = data["summary"]
        elif event["type"] == "tool.shell.output_chunk":
            text += data["data"]
    assert steps["b1"]
    assert set(steps) == {"e1", "b1"}
    assert "running" not in steps.values()
    assert text == "shown\n"


@pytest.mark.parametrize("when", ["0001-01-01T00:00:00%2B14:00", "9999-12-31T23:59:59-14:00"])
async def test_a_time_outside_the_calendar_is_refused(service: Service, when: str) -> None:
    answer = await service.ask("GET", f"/artifacts?created_after={when}")
    assert (answer.status, answer.json["error"]["type"]) == (400, "invalid_request")
