"""Review of patches over REST: propose, apply, reject, revert."""

import asyncio
import base64
import os
from pathlib import Path
from typing import Any

import pytest

from tests.agent.stage import bash, call, end, say
from tests.serve.http.wire import Answer
from tests.service.serving import Json, Run, Service

TOKEN = f"ghp_{'a1B2' * 9}"


@pytest.fixture(scope="module")
def flags() -> tuple[str, ...]:
    return ("--auto-allow",)


@pytest.fixture
def workspace(service: Service) -> Path:
    return service.stage.workspace


def edit(path: str, old: str, new: str, call_id: str) -> Json:
    return call("edit_file", call_id, file_path=path, old_string=old, new_string=new)


def write(path: str, content: str, call_id: str) -> Json:
    return call("write_file", call_id, file_path=path, content=content)


async def ran(service: Service, *turns: list[Any], **fields: Any) -> Run:
    """A run under review that has ended; each list is a turn."""
    model = service.stage.scenario(*turns, [say("Done."), end()])
    fields.setdefault("auto_apply", False)
    run = await service.started(model, **fields)
    await run.ended()
    return run


async def proposed(service: Service, run: Run) -> list[Json]:
    found: list[Json] = await service.get(f"{run.path}/patches?status=proposed")
    return found


async def review(service: Service, run: Run, patch: Json | None, what: str, **body: Any) -> Answer:
    place = "" if patch is None else f"/{patch['artifact']['id']}"
    return await service.ask("POST", f"{run.path}/patches{place}/{what}", body)


async def since(run: Run, type_: str) -> list[Json]:
    """The events that follow the run's end."""
    events = await run.events()
    place = [event["type"] for event in events].index(type_)
    return events[place + 1 :]


async def test_line_49_an_edit_under_review_writes_nothing(
    service: Service, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("one one\n")

    run = await ran(
        service,
        [edit("a.txt", "three", "3", "missing"), edit("a.txt", "one", "1", "ambiguous")],
        [edit("a.txt", "one one", "1 1", "fits"), write("new.txt", "new\n", "new")],
    )

    events = await run.events()
    ends = {
        event["data"]["tool_call_id"]: event["type"]
        for event in events
        if event["type"] in ("tool.completed", "tool.failed")
    }
    assert ends == {
        "missing": "tool.failed",
        "ambiguous": "tool.failed",
        "fits": "tool.completed",
        "new": "tool.completed",
    }
    assert (workspace / "a.txt").read_text() == "one one\n"
    assert not (workspace / "new.txt").exists()
    patches = await proposed(service, run)
    assert [(p["path"], p["status"], p["before_existed"]) for p in patches] == [
        ("a.txt", "proposed", True),
        ("new.txt", "proposed", False),
    ]
    told = next(e for e in events if e["type"] == "tool.completed")["data"]["output"]
    assert "Nothing is written" in told
    proposals = [
        (event["type"], event["data"]["auto_apply"])
        for event in events
        if event["type"].endswith(".proposed")
    ]
    assert proposals == [("tool.edit.proposed", False), ("tool.file_write.proposed", False)]
    whole = await service.get(f"{run.path}/patches/{patches[0]['artifact']['id']}")
    assert "-one one\n+1 1\n" in whole["diff"]


async def test_an_applied_patch_is_written_and_told_with_its_author(
    service: Service, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("one\n")
    run = await ran(service, [edit("a.txt", "one", "1", "e"), write("new.txt", "new\n", "w")])
    first, second = await proposed(service, run)

    answer = await review(service, run, first, "apply", reason="fine")

    assert answer.status == 200
    assert answer.json["object"] == "task_patch"
    assert (answer.json["data"]["status"], answer.json["data"]["path"]) == ("applied", "a.txt")
    assert (workspace / "a.txt").read_text() == "1\n"
    assert not (workspace / "new.txt").exists()
    rejected = await review(service, run, second, "reject", reason=f"not this: {TOKEN}")
    assert rejected.json["data"]["status"] == "rejected"
    assert await proposed(service, run) == []
    events = await since(run, "run.finished")
    told = [rejected.json["data"], *(await service.get(f"{run.path}/patches"))[1:]]
    assert [p["artifact"]["updated_at"] for p in told] == 2 * [events[-1]["occurred_at"]]
    assert [event["type"] for event in events] == [
        "tool.edit.applied",
        "artifact.updated",
        "artifact.updated",
    ]
    assert (events[0]["data"]["applied_by"], events[0]["data"]["tool_name"]) == (
        "operator",
        "edit_file",
    )
    changes = [event["data"] for event in events[1:]]
    assert [(c["old_value"], c["new_value"], c["by"], c["reason"]) for c in changes] == [
        ("proposed", "applied", "operator", "fine"),
        ("proposed", "rejected", "operator", "not this: ghp_<redacted>"),
    ]
    for patch, what in ((first, "apply"), (first, "reject"), (second, "apply")):
        again = await review(service, run, patch, what)
        assert (again.status, again.error["code"]) == (409, "not_proposed")


@pytest.mark.own_service
async def test_edits_under_review_build_on_each_other_also_after_a_pause(
    service: Service, workspace: Path
) -> None:
    await service.stop()
    await service.start("--permission-mode", "acceptEdits")
    (workspace / "a.txt").write_text("one\n")
    model = service.stage.scenario(
        [edit("a.txt", "one", "two", "e1")],
        [bash("cat a.txt", "b")],
        [edit("a.txt", "two", "three", "e2"), call("read_file", "r", file_path="a.txt")],
        [say("Done."), end()],
    )
    run = await service.started(model, auto_apply=False)
    await run.resolve((await run.approval())["id"], "approve")
    await run.ended()

    patches = await proposed(service, run)

    assert len(patches) == 2
    outputs = {
        event["data"]["tool_call_id"]: event["data"]["output"]
        for event in await run.events()
        if event["type"] == "tool.completed"
    }
    assert "one" in outputs["b"]
    assert "three" in outputs["r"]
    early = await review(service, run, patches[1], "apply")
    assert (early.status, early.error["paths"]) == (409, ["a.txt"])
    assert (await review(service, run, None, "apply")).status == 200
    assert (workspace / "a.txt").read_text() == "three\n"


async def test_line_50_a_file_that_differs_is_not_overwritten(
    service: Service, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("one\n")
    (workspace / "b.txt").write_text("one\n")
    run = await ran(
        service,
        [edit("a.txt", "one", "1", "a"), edit("b.txt", "one", "1", "b"), write("c.txt", "c", "c")],
    )
    a, b, c = await proposed(service, run)
    (workspace / "a.txt").write_text("changed\n")
    (workspace / "c.txt").write_text("there\n")

    for patch in (a, c):
        answer = await review(service, run, patch, "apply")
        assert (answer.status, answer.error["type"]) == (409, "conflict")
        assert (answer.error["code"], answer.error["paths"]) == ("base_changed", [patch["path"]])
    whole = await review(service, run, None, "apply")

    assert (whole.status, whole.error["paths"]) == (409, ["a.txt", "c.txt"])
    assert (workspace / "a.txt").read_text() == "changed\n"
    assert (workspace / "b.txt").read_text() == "one\n"
    assert (workspace / "c.txt").read_text() == "there\n"
    assert len(await proposed(service, run)) == 3
    some = await review(service, run, None, "apply", paths=["b.txt"])
    assert [one["path"] for one in some.json["data"]] == ["b.txt"]
    missing = await review(service, run, None, "apply", paths=["b.txt"])
    assert (missing.status, "b.txt" in missing.error["message"]) == (404, True)
    assert (workspace / "b.txt").read_text() == "1\n"
    assert (await review(service, run, b, "revert")).status == 200
    assert (await review(service, run, None, "reject")).status == 200
    assert (await review(service, run, None, "reject")).error["code"] == "not_proposed"


async def test_line_51_links_and_paths_out_of_the_workspace_are_refused(
    service: Service, workspace: Path
) -> None:
    outside = service.stage.directory / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("one\n")
    (workspace / "sub").mkdir()
    (workspace / "sub" / "a.txt").write_text("one\n")
    (workspace / "b.txt").write_text("one\n")
    run = await ran(service, [edit("sub/a.txt", "one", "1", "a"), edit("b.txt", "one", "1", "b")])
    a, b = await proposed(service, run)
    # A directory and a file become links after the review began.
    (workspace / "sub" / "a.txt").unlink()
    (workspace / "sub").rmdir()
    os.symlink(outside, workspace / "sub")
    (workspace / "b.txt").unlink()
    (workspace / "c.txt").write_text("one\n")
    os.symlink("c.txt", workspace / "b.txt")

    for patch in (a, b):
        answer = await review(service, run, patch, "apply")
        assert (answer.status, answer.error["code"]) == (400, "path_refused")
    assert (outside / "a.txt").read_text() == "one\n"
    assert (workspace / "c.txt").read_text() == "one\n"
    for path in ("../outside/a.txt", str(outside / "a.txt"), "sub/a.txt", "x/../../outside/a.txt"):
        answer = await upload(service, run, path, "one", "1")
        assert (answer.status, answer.error["code"]) == (400, "path_refused"), path
    (workspace / ".git" / "hooks").mkdir(parents=True)
    (workspace / ".git" / "hooks" / "post-commit").write_text("one\n")
    answer = await upload(service, run, ".git/hooks/post-commit", "one", "1")
    assert (answer.status, answer.error["code"]) == (400, "path_refused")
    for place in ("..%2f..%2fetc", "..", "art_x%00"):
        answer = await service.ask("POST", f"{run.path}/patches/{place}/apply")
        assert answer.status == 404
        unsafe = await service.ask("GET", f"/tasks/{place}/runs/{place}/patches")
        assert unsafe.status == 404


async def upload(service: Service, run: Run, path: str, old: str, new: str) -> Answer:
    """A client's own patch of the first line of a file."""
    diff = f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{old}\n+{new}\n"
    return await service.ask(
        "POST",
        "/artifacts",
        {
            "kind": "patch",
            "mime_type": "text/x-diff",
            "run_id": run.run_id,
            "metadata": {"target_path": path, "sealed_artifact_id": "art_x"},
            "body_base64": base64.b64encode(diff.encode()).decode(),
        },
    )


async def test_a_clients_patch_is_reviewed_like_one_of_the_run(
    service: Service, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("one\ntwo\n")
    run = await ran(service)

    made = await upload(service, run, "a.txt", "one", "1")

    assert (made.status, made.json["data"]["status"]) == (201, "proposed")
    (patch,) = await proposed(service, run)
    assert (await review(service, run, patch, "apply")).status == 200
    assert (workspace / "a.txt").read_text() == "1\ntwo\n"
    assert (await review(service, run, patch, "revert")).status == 200
    assert (workspace / "a.txt").read_text() == "one\ntwo\n"
    other = await upload(service, run, "a.txt", "three", "3")
    assert (other.status, other.error["code"]) == (409, "base_changed")
    bad = await service.ask(
        "POST",
        "/artifacts",
        {
            "kind": "patch",
            "run_id": run.run_id,
            "metadata": {"target_path": "a.txt"},
            "body_base64": base64.b64encode(b"change it").decode(),
        },
    )
    assert (bad.status, bad.error["code"]) == (400, "bad_diff")


async def test_line_67_a_revert_is_a_new_patch_and_the_old_one_stays_applied(
    service: Service, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("one\n")
    run = await ran(
        service,
        [edit("a.txt", "one", "1", "e"), write("new.txt", "new\n", "w")],
        auto_apply=True,
    )
    assert (workspace / "a.txt").read_text() == "1\n"
    patch, _ = await service.get(f"{run.path}/patches")

    answer = await review(service, run, patch, "revert", reason="tests failed")

    assert answer.status == 200
    original = await service.get(f"/artifacts/{patch['artifact']['id']}")
    assert (original["status"], bool(original["reverted_at"])) == ("applied", True)
    inverse = (await service.get(f"{run.path}/patches"))[-1]
    assert inverse["artifact"]["reverted_from_artifact_id"] == original["id"]
    assert (inverse["status"], inverse["path"]) == ("applied", "a.txt")
    assert (workspace / "a.txt").read_text() == "one\n"
    reverted = next(e for e in await run.events() if e["type"] == "tool.edit.reverted")
    assert reverted["data"] == {
        "patch_artifact_id": original["id"],
        "reverted_by": "operator",
        "reason": "tests failed",
        "inverse_artifact_id": inverse["artifact"]["id"],
    }
    again = await review(service, run, patch, "revert")
    assert (again.status, again.error["code"]) == (409, "already_reverted")
    of_inverse = await review(service, run, inverse, "revert")
    assert of_inverse.status == 409
    # The rest of the run: its new file goes.
    rest = await review(service, run, None, "revert")
    assert [one["path"] for one in rest.json["data"]] == ["new.txt"]
    assert not (workspace / "new.txt").exists()
    assert (await review(service, run, None, "revert")).error["code"] == "not_applied"


async def test_all_that_a_revert_does_names_who_reverted_and_why(
    service: Service, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("one\n")
    run = await ran(service, [edit("a.txt", "one", "1", "e")], auto_apply=True)
    before = await run.events()
    (patch,) = await service.get(f"{run.path}/patches")

    assert (await review(service, run, patch, "revert", reason="tests failed")).status == 200

    after = (await run.events())[len(before) :]
    made = [e["data"] for e in after if e["type"] == "artifact.created"]
    assert [fact["kind"] for fact in made] == ["sealed", "patch"]
    assert {fact["by"] for fact in made} == {"operator"}
    # The last event before it, the end of the run, did not create the inverse patch.
    assert not any("created_by_event_id" in fact for fact in made)
    changed = [e["data"] for e in after if e["type"] == "artifact.updated"]
    assert [(fact["field"], fact["by"], fact["reason"]) for fact in changed] == [
        ("status", "operator", "tests failed"),
        ("reverted_at", "operator", "tests failed"),
    ]


async def test_a_revert_of_a_file_that_was_changed_since_is_refused(
    service: Service, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("one\n")
    run = await ran(service, [edit("a.txt", "one", "1", "e")], auto_apply=True)
    (patch,) = await service.get(f"{run.path}/patches")
    (workspace / "a.txt").write_text("mine\n")

    answer = await review(service, run, patch, "revert")

    assert (answer.status, answer.error["paths"]) == (409, ["a.txt"])
    assert (workspace / "a.txt").read_text() == "mine\n"
    assert "tool.edit.reverted" not in [e["type"] for e in await run.events()]


async def test_of_decisions_at_once_one_counts(service: Service, workspace: Path) -> None:
    (workspace / "a.txt").write_text("one\n")
    run = await ran(service, [edit("a.txt", "one", "1", "e")])
    (patch,) = await proposed(service, run)

    answers = await asyncio.gather(
        *(review(service, run, patch, what) for what in ("apply", "apply", "reject", "apply"))
    )

    statuses = sorted(answer.status for answer in answers)
    assert statuses == [200, 409, 409, 409]
    won = next(a.json["data"]["status"] for a in answers if a.status == 200)
    assert (workspace / "a.txt").read_text() == ("1\n" if won == "applied" else "one\n")
    events = await since(run, "run.finished")
    assert [e["type"] for e in events].count("artifact.updated") == 1


async def test_patches_of_another_run_or_task_are_not_found(
    service: Service, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("one\n")
    run = await ran(service, [edit("a.txt", "one", "1", "e")])
    other = await ran(service)
    (patch,) = await proposed(service, run)
    name = patch["artifact"]["id"]

    for path in (
        f"{other.path}/patches/{name}",
        f"{other.task_path}/runs/{run.run_id}/patches/{name}",
        f"{run.task_path}/runs/{other.run_id}/patches/{name}",
    ):
        assert (await service.ask("GET", path)).status == 404
        for what in ("apply", "reject", "revert"):
            assert (await service.ask("POST", f"{path}/{what}")).status == 404
    # An artifact that is no patch is not found either.
    blob = {"kind": "tool_result_blob", "run_id": run.run_id, "body_base64": "aGk="}
    made = (await service.ask("POST", "/artifacts", blob)).json["data"]["id"]
    assert (await service.ask("POST", f"{run.path}/patches/{made}/apply")).status == 404
    assert (workspace / "a.txt").read_text() == "one\n"


async def test_a_multi_edit_is_applied_as_a_whole(service: Service, workspace: Path) -> None:
    (workspace / "a.txt").write_text("one\n")
    (workspace / "b.txt").write_text("one\n")
    edits = [
        {"file_path": name, "old_string": "one", "new_string": "1"} for name in ("a.txt", "b.txt")
    ]
    run = await ran(service, [call("multi_edit", "m", edits=edits)])

    answer = await review(service, run, None, "apply")

    assert [one["status"] for one in answer.json["data"]] == ["applied", "applied"]
    whole = next(e for e in await run.events() if e["type"] == "tool.multi_edit.applied")
    assert whole["data"]["patch_artifact_ids"] == [
        one["artifact"]["id"] for one in answer.json["data"]
    ]
    assert (workspace / "a.txt").read_text() == (workspace / "b.txt").read_text() == "1\n"


async def test_an_apply_that_was_killed_before_its_record_is_finished_by_the_next(
    service: Service, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("one\n")
    run = await ran(service, [edit("a.txt", "one", "1", "e")])
    (patch,) = await proposed(service, run)
    (workspace / "a.txt").write_text("1\n")  # what the killed one had written

    answer = await review(service, run, patch, "apply")

    assert (answer.status, answer.json["data"]["status"]) == (200, "applied")
    assert (workspace / "a.txt").read_text() == "1\n"
