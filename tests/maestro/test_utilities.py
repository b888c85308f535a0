"""Utility operations over real pipes: gated, answered, and ended with the session's work."""

import os

from tests.agent.stage import Stage, end, say
from tests.maestro.schemas import Json
from tests.maestro.speaking import speaking

DONE = [say("Done."), end()]


async def test_utilities_are_refused_to_who_did_not_offer_to_use_them(stage: Stage) -> None:
    needs: dict[str, tuple[Json, str]] = {
        "utility_command_start": ({"command_id": "u", "command": "touch made"}, "command_exec"),
        "utility_command_stdin": ({"command_id": "u", "content": "x"}, "command_exec"),
        "utility_command_resize": ({"command_id": "u", "columns": 1, "rows": 1}, "command_exec"),
        "utility_file_search": ({"search_id": "s", "query": "x"}, "file_search"),
        "utility_file_read": ({"read_id": "r", "path": "x"}, "file_read"),
        "utility_file_watch_start": ({"watch_id": "w"}, "file_watch"),
    }
    async with speaking(stage, DONE) as client:
        client.say("hello")
        for kind, (fields, operation) in needs.items():
            client.say(kind, **fields)
            error = await client.until("error")
            assert error["message"] == f"{kind} requires {operation} capability"
            assert (error["fatal"], error["error_type"]) == (False, "tool")
            assert error["request_id"] == next(iter(fields.values()))
        client.say("utility_command_terminate", command_id="u")
        client.say("utility_file_watch_stop", watch_id="w")
        client.say("init")
        await client.until("status")
        assert len(client.of("error")) == len(needs)
    assert not (stage.workspace / "made").exists()


async def test_each_operation_answers_with_its_own_messages(stage: Stage) -> None:
    (stage.workspace / "notes.md").write_text("alpha\nbeta\ngamma\n")
    outside = stage.directory / "secret.txt"
    outside.write_text("secret")
    async with speaking(stage, DONE) as client:
        await client.hello()
        client.say("utility_file_read", read_id="r1", path="notes.md", limit=2)
        page = await client.until("utility_file_read_result")
        assert page == {
            "type": "utility_file_read_result",
            "read_id": "r1",
            "path": str(stage.workspace / "notes.md"),
            "relative_path": "notes.md",
            "cwd": str(stage.workspace),
            "content": "alpha\nbeta",
            "start_line": 1,
            "end_line": 2,
            "total_lines": 3,
            "truncated": True,
        }
        client.say("utility_file_read", read_id="r2", path=str(outside))
        error = await client.until("error")
        assert (error["request_id"], error["fatal"]) == ("r2", False)
        assert "outside workspace root" in error["message"]
        client.say("utility_file_search", search_id="s1", query=" notes ")
        found = await client.until("utility_file_search_results")
        assert (found["query"], found["results"][0]["path"]) == ("notes", "notes.md")
        client.say(
            "utility_command_start", command_id="u1", command="echo utility ok", shell_mode="direct"
        )
        started = await client.until("utility_command_started")
        assert started["owner_connection_id"] == "local"
        assert started["cwd"] == str(stage.workspace)
        await client.until("utility_command_output", content="utility ok\n", stream="stdout")
        exited = await client.until("utility_command_exited")
        assert (exited["success"], exited["exit_code"]) == (True, 0)
        client.say("utility_command_stdin", command_id="u1", content="x")
        error = await client.until("error")
        assert error["message"] == "Utility command not found: u1"
        client.say("utility_command_start", command_id="u2", command="true", columns=80)
        error = await client.until("error")
        said = "Utility command columns and rows require terminal_mode=pty"
        assert error["message"] == said


async def test_input_after_its_end_is_refused(stage: Stage) -> None:
    async with speaking(stage, DONE) as client:
        await client.hello()
        for name, line in (
            ("told", "cat; echo end; sleep 60"),
            ("closed", "exec <&-; echo end; sleep 60"),
        ):
            client.say("utility_command_start", command_id=name, command=line, allow_stdin=True)
            if name == "told":
                client.say("utility_command_stdin", command_id=name, content="x", eof=True)
            await client.until("utility_command_output", command_id=name)
            client.say("utility_command_stdin", command_id=name, content="y", eof=True)
            error = await client.until("error")
            said = f"Utility command stdin is not writable: {name}: it is closed"
            assert (error["request_id"], error["message"]) == (name, said)


async def test_a_terminal_is_written_to_and_resized(stage: Stage) -> None:
    async with speaking(stage, DONE) as client:
        await client.hello()
        client.say(
            "utility_command_start",
            command_id="t1",
            command="stty size; read x; stty size",
            terminal_mode="pty",
            columns=100,
            rows=30,
            allow_stdin=True,
        )
        started = await client.until("utility_command_started")
        assert (started["terminal_mode"], started["columns"], started["rows"]) == ("pty", 100, 30)
        await client.until("utility_command_output")
        client.say("utility_command_resize", command_id="t1", columns=60.0, rows=20)
        assert (await client.until("utility_command_resized"))["columns"] == 60
        client.say("utility_command_stdin", command_id="t1", content="go\n")
        await client.until("utility_command_exited", success=True)
    output = "".join(one["content"] for one in client.of("utility_command_output"))
    assert output.startswith("30 100\r\n")
    assert output.endswith("20 60\r\n")


async def test_a_watch_tells_of_changes_and_an_interrupt_ends_it_with_the_commands(
    stage: Stage,
) -> None:
    async with speaking(stage, DONE) as client:
        await client.hello()
        client.say("utility_file_watch_start", watch_id="w1", debounce_ms=0)
        started = await client.until("utility_file_watch_started")
        assert started["owner_connection_id"] == "local"
        (stage.workspace / "new.txt").write_text("x")
        event = await client.until("utility_file_watch_event", relative_path="new.txt")
        assert event["change_type"] == "create"
        client.say("utility_file_watch_stop", watch_id="w1")
        stopped = await client.until("utility_file_watch_stopped")
        assert stopped["reason"] == "Stopped by controller"
        client.say("utility_file_watch_start", watch_id="w2")
        await client.until("utility_file_watch_started")
        client.say("utility_command_start", command_id="u1", command="sleep 60")
        client.say("utility_command_start", command_id="u2", command="sleep 60")
        pids = [(await client.until("utility_command_started"))["pid"] for _ in range(2)]
        client.say("utility_command_terminate", command_id="u2")
        ended = await client.until("utility_command_exited", command_id="u2")
        assert (ended["reason"], ended["signal"]) == ("Terminated by controller", "SIGTERM")
        client.say("interrupt")
        ended = await client.until("utility_command_exited", command_id="u1")
        assert ended["reason"] == "Interrupted while utility command was still running"
        assert ended["success"] is False
        client.say("init")
        await client.until("status")
        (stopped,) = client.of("utility_file_watch_stopped", watch_id="w2")
        assert stopped["reason"] == "Interrupted while file watch was still running"
        assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


async def test_a_watch_tells_what_was_made_changed_moved_and_removed_of_what_is_wanted(
    stage: Stage,
) -> None:
    old = stage.workspace / "old.txt"
    old.write_text("x")
    os.utime(old, (1, 1))
    async with speaking(stage, DONE) as client:
        await client.hello()
        client.say(
            "utility_file_watch_start",
            watch_id="w",
            debounce_ms=1,
            include_patterns=["*.txt"],
            exclude_patterns=["not*"],
        )
        started = await client.until("utility_file_watch_started")
        assert (started["include_patterns"], started["exclude_patterns"]) == (["*.txt"], ["not*"])
        for name in ("other.md", "not.txt", "made.txt"):
            (stage.workspace / name).touch()
        await client.until("utility_file_watch_event", relative_path="made.txt")
        old.rename(stage.workspace / "moved.txt")
        moved = await client.until("utility_file_watch_event", relative_path="moved.txt")
        assert (moved["change_type"], moved["is_directory"]) == ("rename", False)
        assert moved["path"] == str(stage.workspace / "moved.txt")
        (stage.workspace / "made.txt").unlink()
        await client.until("utility_file_watch_event", change_type="delete", path=made(stage))
    events = client.of("utility_file_watch_event")
    assert {one["relative_path"] for one in events} == {"made.txt", "old.txt", "moved.txt"}
    kinds = {one["change_type"] for one in events if one["relative_path"] == "old.txt"}
    assert kinds == {"delete"}


def made(stage: Stage) -> str:
    return str(stage.workspace / "made.txt")


async def test_a_watch_ends_with_its_directory_and_says_so(stage: Stage) -> None:
    (stage.workspace / "gone").mkdir()
    (stage.workspace / "moved").mkdir()
    async with speaking(stage, DONE) as client:
        await client.hello()
        for name in ("gone", "moved"):
            client.say("utility_file_watch_start", watch_id=name, root_dir=name, debounce_ms=1)
        await client.until("utility_file_watch_started")
        await client.until("utility_file_watch_started")
        (stage.workspace / "gone").rmdir()
        gone = await client.until("utility_file_watch_stopped")
        (stage.workspace / "moved").rename(stage.workspace / "elsewhere")
        moved = await client.until("utility_file_watch_stopped")
        client.say("utility_file_watch_stop", watch_id="gone")
        client.say("utility_file_watch_start", watch_id="gone", root_dir="elsewhere")
        await client.until("utility_file_watch_started", watch_id="gone")
        for _ in range(3):
            client.say("utility_file_watch_stop", watch_id="gone")
        await client.until("utility_file_watch_stopped", watch_id="gone")
        client.say("init")
        await client.until("status")
    assert (gone["watch_id"], moved["watch_id"]) == ("gone", "moved")
    reason = f"Watched directory is gone: {stage.workspace}/"
    assert [gone["reason"], moved["reason"]] == [reason + "gone", reason + "moved"]
    assert client.of("error") == []


async def test_a_client_that_goes_away_leaves_no_command_behind(stage: Stage) -> None:
    async with speaking(stage, DONE) as client:
        await client.hello()
        client.say("utility_command_start", command_id="u1", command="sleep 60")
        pid = (await client.until("utility_command_started"))["pid"]
        client.hang_up()
        assert await client.rest() == 0
    reason = "Owning connection closed while utility command was still running"
    assert client.of("utility_command_exited")[0]["reason"] == reason
    assert not os.path.exists(f"/proc/{pid}")
