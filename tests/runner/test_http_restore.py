"""A drained runner goes on elsewhere: from its workspace and manifest alone, on an empty home."""

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batten.journal.sqlite import SqliteJournal
from batten.runner.restore import load
from batten.runner.session_file import journal_id, write
from tests.agent.stage import Stage, bash, end, say
from tests.maestro.schemas import Json
from tests.runner.remote import WELL_KNOWN, NotStarted, RunnerProcess
from tests.runner.test_http import CONNECTIONS, HERE, NAMED, connected, first, heard, prompted
from tests.runner.test_restore import foreign, written
from tests.session.processes import batten

DONE = [say("Done."), end()]
AGAIN = [say("Again."), end()]
UNSIGNED = {"BATTEN_RUNNER_UNSIGNED_MANIFESTS": "1"}
"""For manifests that a test, or another make, wrote."""


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def start(stage: Stage, model: str, *flags: str, **more: object) -> RunnerProcess:
    return RunnerProcess.start(
        stage,
        *("--runner-session-id", "mrs_1", "--owner-instance-id", "pod_1"),
        *("--workspace-root", str(stage.workspace), "--sandbox", "none"),
        *(("--model", model) if model else ()),
        *flags,
        **more,  # type: ignore[arg-type]
    )


def drained_once(stage: Stage, model: str) -> Json:
    """The drain of a session that was prompted once."""
    runner = start(stage, model, "--maestro-session-id", NAMED)
    try:
        connection = connected(runner, approvalMode="auto")["connection_id"]
        prompted(runner, connection)
        answer = runner.post(f"{WELL_KNOWN}/drain", {"reason": "ttl_expired"})
        assert answer.status == 200
        told: Json = answer.json
        return told
    finally:
        assert runner.end() == 0


async def facts_of(home: Path) -> list[bytes]:
    """Every stored byte of the session, in order."""
    journal = SqliteJournal.open(str(home))
    found: list[bytes] = []
    for run in reversed(await journal.runs(session_id=journal_id(NAMED))):
        found += [one.body for one in await journal.read(run.run_id, limit=10_000)]
        assert await journal.verify(run.run_id) == []
    journal.close()
    return found


def test_an_empty_home_and_another_place_are_enough(stage: Stage) -> None:
    drained = drained_once(stage, stage.scenario(DONE, AGAIN))
    manifest = drained["manifest"]
    kept = Path(manifest["runtime"]["session_file"])
    assert kept.is_relative_to(stage.workspace)
    assert kept.stat().st_mode & 0o777 == 0o600
    before = asyncio.run(facts_of(stage.home))
    stage.home.rename(stage.directory / "former")
    name = Path(drained["manifest_path"]).relative_to(stage.workspace)
    stage.workspace = stage.workspace.rename(stage.directory / "moved")
    runner = start(stage, "", "--restore-manifest", str(name), "--runner-session-id", "mrs_2")
    try:
        who = runner.ask("GET", f"{WELL_KNOWN}/identity").json
        assert (who["runner_session_id"], who["ready"]) == ("mrs_2", True)
        assert asyncio.run(facts_of(stage.home))[: len(before)] == before
        snapshot = runner.ask("GET", f"{HERE}/state").json
        assert (snapshot["session_id"], snapshot["cursor"]) == (
            NAMED,
            manifest["runtime"]["cursor"],
        )
        state = snapshot["state"]
        assert (state["last_status"], state["cwd"]) == (
            "Restored from snapshot",
            str(stage.workspace),
        )
        reset = first(runner, f"{HERE}/events?cursor=0")
        assert (reset["type"], reset["reason"]) == ("reset", "restored_from_snapshot")
        connection = connected(runner, sessionId=NAMED)["connection_id"]
        said = prompted(runner, connection, "go on")
        texts = [one["message"].get("content") for one in said if one["type"] == "message"]
        assert "Again." in texts  # where the script was left
        assert said[0]["cursor"] > manifest["runtime"]["cursor"]
    finally:
        assert runner.end() == 0


def test_what_clients_set_holds_when_the_session_is_opened_again(stage: Stage) -> None:
    flags = ("--permission-mode", "dontAsk", "--append-system-prompt", "Of the flag.")
    init = {"type": "init", "system_prompt": "Of the client.", "approval_mode": "prompt"}

    def kept(home: Path) -> tuple[object, ...]:
        journal = SqliteJournal.open(str(home))
        row = asyncio.run(journal.session(journal_id(NAMED)))
        journal.close()
        assert row is not None
        settings: Json = row.settings
        return settings["mode"], settings["system"], settings["append_system"], settings["models"]

    usual = stage.scenario(DONE)
    runner = start(stage, usual, "--maestro-session-id", NAMED, *flags)
    try:
        wanted = stage.scenario(DONE, AGAIN, name="wanted")
        connection = connected(runner, model=wanted)["connection_id"]
        assert runner.post(f"{HERE}/messages", init, connection_id=connection).status == 200
        set_before = kept(stage.home)
        assert set_before == ("default", "Of the client.", "", [wanted])
        (process,) = runner.session_processes()
        os.kill(process, signal.SIGKILL)
        heard(runner, f"{HERE}/events", "The process of the session ended with -9")
        assert connected(runner, sessionId=NAMED)["snapshot"]["last_init"] == init
        assert kept(stage.home) == set_before
        manifest = runner.post(f"{WELL_KNOWN}/drain").json["manifest_path"]
    finally:
        runner.end()
    home = stage.directory / "elsewhere"
    runner = start(stage, usual, *flags, "--restore-manifest", manifest, home=home)
    runner.end()
    assert kept(home)[0] == "default", "clients are asked, as they wanted"


def test_the_audit_logs_of_both_homes_tell_of_the_move(stage: Stage) -> None:
    def audited() -> list[tuple[str, str]]:
        listed = batten(stage, "audit", "--json").stdout.splitlines()
        entries = [msgspec.json.decode(line) for line in listed]
        return [(one["actor"], one["action"]) for one in reversed(entries)]

    drained = drained_once(stage, stage.scenario(DONE, AGAIN))
    assert audited() == [
        *(("client", "policy.changed"), ("local", "run.started"), ("runner", "session.exported")),
    ]
    stage.home.rename(stage.directory / "former")
    name = Path(drained["manifest_path"]).relative_to(stage.workspace)
    runner = start(stage, "", "--restore-manifest", str(name))
    assert runner.end() == 0
    # The run began elsewhere.
    assert audited() == [("runner", "session.imported"), ("runner", "session.exported")]


def test_a_manifest_can_be_restored_more_than_once(stage: Stage) -> None:
    drained = drained_once(stage, stage.scenario(DONE, AGAIN))
    flags = ("--restore-manifest", drained["manifest_path"])
    for number in range(2):  # the drain of the first one leaves a file of its own
        runner = start(stage, "", *flags, home=stage.directory / f"home{number}")
        try:
            snapshot = runner.ask("GET", f"{HERE}/state").json
            assert snapshot["cursor"] == drained["manifest"]["runtime"]["cursor"]
            said = prompted(runner, connected(runner, sessionId=NAMED)["connection_id"])
            assert said[-1]["message"]["type"] == "response_end"
        finally:
            assert runner.end() == 0


def test_files_of_a_session_are_kept_up_to_a_limit(stage: Stage) -> None:
    drained = drained_once(stage, stage.scenario(DONE))
    last = Path(drained["manifest"]["runtime"]["session_file"])
    session_id = journal_id(NAMED)
    earlier = [last.with_name(f"{session_id}-{number:016d}.batten") for number in range(8)]
    other = last.with_name("chat_other-0.batten")
    for number, path in enumerate((other, *earlier)):
        path.touch()
        os.utime(path, (number, number))
    again = write(str(stage.home), str(stage.workspace), None, session_id)
    assert set(last.parent.iterdir()) == {last, Path(again.path), other, *earlier[2:]}


def test_a_session_may_get_another_name(stage: Stage) -> None:
    drained = drained_once(stage, stage.scenario(DONE, AGAIN))
    shutil.rmtree(stage.home)
    flags = ("--restore-manifest", drained["manifest_path"], "--maestro-session-id", "renamed")
    runner = start(stage, "", *flags)
    try:
        assert runner.ask("GET", "/api/headless/sessions/renamed").json["session_id"] == "renamed"
        again = runner.post(f"{WELL_KNOWN}/drain").json
        assert again["manifest"]["maestro_session_id"] == "renamed"
    finally:
        runner.end()
    shutil.rmtree(stage.home)
    runner = start(stage, "", "--restore-manifest", again["manifest_path"])
    try:
        answer = runner.post(CONNECTIONS, {"sessionId": "renamed"})
        assert answer.status == 200
    finally:
        runner.end()


def _cut(kept: Path) -> None:
    kept.write_bytes(kept.read_bytes()[:-100])


def _flipped(kept: Path) -> None:
    data = bytearray(kept.read_bytes())
    data[len(data) // 2] ^= 1
    kept.write_bytes(data)


def _linked(kept: Path) -> None:
    outside = kept.parents[4] / "outside.batten"
    kept.rename(outside)
    kept.symlink_to(outside)


def _other(kept: Path) -> None:
    kept.write_text('{"type":"session"}\n')


@pytest.mark.parametrize("is_named", [True, False], ids=["with its hash", "without"])
@pytest.mark.parametrize("damage", [_cut, _flipped, _linked, _other, Path.unlink])
def test_a_damaged_session_file_is_refused(
    stage: Stage, damage: Callable[[Path], None], is_named: bool
) -> None:
    drained = drained_once(stage, stage.scenario(DONE))
    place = Path(drained["manifest_path"])
    manifest = msgspec.json.decode(place.read_bytes())
    if not is_named:
        del manifest["runtime"]["session_file_sha256"], manifest["manifest_sha256"]
        del manifest["manifest_hmac_sha256"]
        place.write_bytes(msgspec.json.encode(manifest))
    damage(Path(manifest["runtime"]["session_file"]))
    shutil.rmtree(stage.home)
    with pytest.raises(NotStarted) as raised:
        start(stage, "", "--restore-manifest", str(place), env=UNSIGNED)
    assert raised.value.code == 1
    assert "Session" in raised.value.errors
    assert "Traceback" not in raised.value.errors


def test_no_byte_of_a_manifest_can_be_lost_unnoticed(stage: Stage) -> None:
    """Whatever is cut off or broken: it is refused, or nothing that counts has changed."""
    drained = drained_once(stage, stage.scenario(DONE))
    place = Path(drained["manifest_path"])
    whole = place.read_bytes()
    expected = load(str(place), str(stage.workspace))
    for cut in range(0, len(whole) - 2, 97):
        place.write_bytes(whole[:cut])
        with pytest.raises(Exception, match="Snapshot manifest"):
            load(str(place), str(stage.workspace))
    place.write_bytes(whole)
    assert load(str(place), str(stage.workspace)) == expected


def test_a_manifest_of_another_make_is_enough(stage: Stage) -> None:
    """No file of ours is beside it: the session begins anew, under its id and above its cursor."""
    manifest = foreign()
    file = stage.workspace / ".maestro/agent/sessions/session.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text('{"type":"session"}\n')
    manifest["runtime"]["session_file"] = str(file)
    name = written(stage.workspace, manifest)
    runner = start(stage, stage.scenario(DONE), "--restore-manifest", name, env=UNSIGNED)
    try:
        who = runner.ask("GET", f"{WELL_KNOWN}/identity").json
        assert (who["runner_session_id"], who["ready"]) == ("mrs_1", True)
        at = "/api/headless/sessions/sess_old"
        snapshot = runner.ask("GET", f"{at}/state").json
        assert (snapshot["session_id"], snapshot["cursor"]) == ("sess_old", 7)
        reset = first(runner, f"{at}/events")
        assert (reset["type"], reset["reason"]) == ("reset", "restored_from_snapshot")
        answer = runner.post(CONNECTIONS, {"sessionId": "sess_old"})
        assert answer.status == 200
        drained = runner.post(f"{WELL_KNOWN}/drain").json["manifest"]
        assert drained["maestro_session_id"] == "sess_old"
        assert drained["runtime"]["cursor"] > 7
    finally:
        assert runner.end() == 0


@pytest.mark.parametrize("flush", ["failed", "interrupted", "skipped"])
def test_what_was_not_flushed_can_be_read_and_not_attached_to(stage: Stage, flush: str) -> None:
    drained = drained_once(stage, stage.scenario(DONE))
    place = Path(drained["manifest_path"])
    manifest = msgspec.json.decode(place.read_bytes())
    manifest["runtime"]["flush_status"] = flush
    del manifest["manifest_sha256"], manifest["manifest_hmac_sha256"]
    place.write_bytes(msgspec.json.encode(manifest))
    runner = start(stage, "", "--restore-manifest", str(place), env=UNSIGNED)
    try:
        who = runner.ask("GET", f"{WELL_KNOWN}/identity").json
        assert (who["ready"], who["draining"]) == (False, False)
        assert runner.ask("GET", "/readyz").status == 503
        snapshot = runner.ask("GET", f"{HERE}/state").json
        assert snapshot["cursor"] == manifest["runtime"]["cursor"]
        assert snapshot["state"]["last_error"]
        assert first(runner, f"{HERE}/events?cursor=0")["reason"] == "restored_from_snapshot"
        for answer in (
            runner.post(CONNECTIONS, {"sessionId": NAMED}),
            runner.post(f"{HERE}/subscribe"),
            runner.post(f"{HERE}/messages", {"type": "interrupt"}),
        ):
            assert (answer.status, answer.json["error_type"]) == (503, "runtime_not_ready")
        assert runner.session_processes() == []
        # Whoever comes after it finds what it was given to inspect.
        again = runner.post(f"{WELL_KNOWN}/drain").json["manifest"]
        known = ("session_id", "session_file", "session_file_sha256", "cursor")
        assert [again["runtime"][name] for name in known] == [
            manifest["runtime"][name] for name in known
        ]
        assert again["runtime"]["flush_status"] == "skipped"
        assert again["runtime"]["error"] == snapshot["state"]["last_error"]
        shown = again["snapshot"]["state"]
        assert shown == {name: snapshot["state"][name] for name in shown}
        assert again["snapshot"]["cursor"] == snapshot["cursor"]
    finally:
        assert runner.end() == 0


def test_a_drain_is_told_before_anything_else_and_is_done_once(stage: Stage) -> None:
    runner = start(stage, stage.scenario(DONE), "--maestro-session-id", NAMED)
    try:
        connected(runner)
        body: dict[str, Any] = {"reason": " ttl ", "requestedBy": "platform", "export_paths": []}
        drained = runner.ask("POST", f"{WELL_KNOWN}/drain", body, key=None)
        again = runner.ask("POST", f"{WELL_KNOWN}/drain", b"", key=None)
        assert (drained.status, again.status) == (200, 200)
        assert drained.json == again.json
        assert drained.json["reason"] == "ttl"
        place = Path(drained.json["manifest_path"])
        assert msgspec.json.decode(place.read_bytes()) == drained.json["manifest"]
        who = runner.ask("GET", f"{WELL_KNOWN}/identity").json
        assert (who["ready"], who["draining"]) == (False, True)
        for path in (CONNECTIONS, f"{HERE}/subscribe", f"{HERE}/messages"):
            for sent in ({"type": "prompt", "content": "go"}, {"sessionId": "other"}):
                answer = runner.post(path, sent)
                told = answer.json
                assert (answer.status, told["error_type"]) == (503, "runtime_not_ready")
                assert answer.headers["retry-after"]
                (info,) = told["details"]
                assert (info["reason"], info["domain"]) == (
                    "runtime_not_ready",
                    "maestro.hosted_runner",
                )
                assert info["metadata"]["draining"] == "true"
        state = runner.ask("GET", HERE).json["state"]  # reading goes on
        assert (state["last_status"], state["is_ready"]) == ("Drained", False)
        assert heard(runner, f"{HERE}/events?cursor=0", "Drained")
    finally:
        assert runner.end() == 0
    assert len(list(place.parent.iterdir())) == 1  # the signal wrote no other


@pytest.mark.parametrize(
    "body",
    [b"[]", b'"x"', b"{", b'{"reason":1}', b'{"export_paths":".."}', b'{"exportPaths":[""]}'],
)
def test_a_wrong_drain_is_refused(stage: Stage, body: bytes) -> None:
    runner = start(stage, stage.scenario(DONE), "--maestro-session-id", NAMED)
    try:
        assert runner.ask("POST", f"{WELL_KNOWN}/drain", body).status == 400
        outside = runner.post(f"{WELL_KNOWN}/drain", {"export_paths": [".."]})
        assert (outside.status, outside.json["error_type"]) == (400, "export_path_escapes")
        large = {"reason": "x" * 64_000}
        assert runner.post(f"{WELL_KNOWN}/drain", large).status == 413
        who = runner.ask("GET", f"{WELL_KNOWN}/identity").json
        assert (who["ready"], who["draining"]) == (True, False)
        assert runner.ask("GET", "/readyz").status == 200
        assert prompted(runner, connected(runner)["connection_id"])
        assert runner.post(f"{WELL_KNOWN}/drain").status == 200
    finally:
        runner.end()


def test_a_signal_drains_too(stage: Stage) -> None:
    runner = start(
        stage, stage.scenario([bash("sleep 600", "c1")], AGAIN), "--maestro-session-id", NAMED
    )
    connection = connected(runner, approvalMode="auto")["connection_id"]
    by = {"connection_id": connection}
    runner.post(f"{HERE}/messages", {"type": "prompt", "content": "go"}, **by)
    heard(runner, f"{HERE}/events?cursor=0", "tool_start")
    assert runner.end(signal.SIGTERM) == 0
    (place,) = (stage.workspace / ".maestro/runner-snapshots").iterdir()
    manifest = msgspec.json.decode(place.read_bytes())
    assert (manifest["reason"], manifest["requested_by"]) == (
        "process_shutdown",
        "maestro_web_server",
    )
    assert manifest["runtime"]["flush_status"] == "completed"
    assert manifest["work_continuity"]["active_tool_count"] == 1
    shutil.rmtree(stage.home)
    runner = start(stage, "", "--restore-manifest", str(place))
    try:
        connection = connected(runner, sessionId=NAMED)["connection_id"]
        prompted(runner, connection)
    finally:
        runner.end()
