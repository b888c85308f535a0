"""How much a client may start, bring and read; what is beyond is refused and changes nothing."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batten.agent.rules.rule import Rule
from batten.agent.rules.verdict import may_read
from batten.serve.maestro.attachments import load
from batten.serve.maestro.limits import Limits, limits_of
from batten.session.utilities.commands import MOST_COMMANDS
from batten.session.utilities.watches import MOST_WATCHES
from tests.agent.stage import Stage, end, say
from tests.maestro.speaking import Speaker, speaking
from tests.maestro.test_runs import prompts_of

DONE = [say("Done."), end()]
LINES = "alpha\nbeta\ngamma\n"


async def refused(client: Speaker, kind: str, **fields: Any) -> str:
    """Why something is not done."""
    client.say(kind, **fields)
    error = await client.until("error")
    assert error["fatal"] is False
    said: str = error["message"]
    return said


async def test_so_many_commands_and_watches_run_at_once_and_one_that_ends_makes_room(
    stage: Stage,
) -> None:
    async with speaking(stage, DONE) as client:
        await client.hello()
        for number in range(MOST_COMMANDS):
            client.say("utility_command_start", command_id=f"u{number}", command="exec sleep 60")
        for number in range(MOST_WATCHES):
            client.say("utility_file_watch_start", watch_id=f"w{number}")
        more = {"command_id": "more", "command": "true"}
        said = await refused(client, "utility_command_start", **more)
        assert said == f"{MOST_COMMANDS} utility commands run already; end one first"
        said = await refused(client, "utility_file_watch_start", watch_id="more")
        assert said == f"{MOST_WATCHES} file watches run already; stop one first"
        if not client.of("utility_file_watch_started", watch_id="w0"):
            await client.until("utility_file_watch_started", watch_id="w0")
        client.say("utility_command_terminate", command_id="u0", force=True)
        client.say("utility_file_watch_stop", watch_id="w0")
        await client.until("utility_command_exited", command_id="u0")
        client.say("utility_command_start", **more)
        await client.until("utility_command_exited", command_id="more", success=True)
        if not client.of("utility_file_watch_stopped", watch_id="w0"):
            await client.until("utility_file_watch_stopped", watch_id="w0")
        client.say("utility_file_watch_start", watch_id="more")
        await client.until("utility_file_watch_started", watch_id="more")
        client.say("interrupt")
        client.say("init")
        await client.until("status", message="Init received with no changes")
        assert len(client.of("utility_command_exited")) == MOST_COMMANDS + 1
        began, over = "utility_file_watch_started", "utility_file_watch_stopped"
        watches = [{one["watch_id"] for one in client.of(kind)} for kind in (began, over)]
        assert watches[0] == watches[1] >= {"w0", "more"}
        assert client.conversation.state.active_utility_commands == ()


COMMANDS: list[tuple[dict[str, Any], str]] = [
    ({"command": "  "}, "Command is empty; it must name something to run"),
    ({"command": "x" * 100_001}, "Command has 100001 characters; at most 100000 are allowed"),
    ({"command": "echo \x07"}, "Command holds the control character U+0007; "
     "only tab, newline and carriage return are allowed"),
    ({"command": "touch 'made", "shell_mode": "direct"}, "Command has an unterminated ' quote"),
    ({"command": "touch made\\", "shell_mode": "direct"}, "Command ends in an unfinished escape"),
    ({"command": "''", "shell_mode": "direct"}, "Command must contain an executable to run"),
    ({"env": {"A" * 257: "x"}}, "A name in env has more than 256 characters"),
    ({"env": {"A": "x" * 32_769}}, "A value in env has more than 32768 characters"),
    ({"cwd": "nowhere"}, "Working directory not found: nowhere"),
    ({"columns": 80}, "Utility command columns and rows require terminal_mode=pty"),
    ({"terminal_mode": "pty", "rows": 0},
     "Utility command columns and rows are positive whole numbers up to 65535"),
    ({"terminal_mode": "pty", "rows": 1.5}, "rows is 1.5; it is a whole number"),
]  # fmt: skip


async def test_what_is_no_command_is_refused_before_anything_is_started(stage: Stage) -> None:
    async with speaking(stage, DONE) as client:
        await client.hello()
        for fields, problem in COMMANDS:
            asked = {"command_id": "u", "command": "touch made", **fields}
            assert await refused(client, "utility_command_start", **asked) == problem
        outside = {"command_id": "u", "command": "touch made", "cwd": str(stage.directory)}
        said = await refused(client, "utility_command_start", **outside)
        assert said.startswith("Path is outside workspace root: ")
        client.say("utility_command_start", command_id="u", command="cat", allow_stdin=True)
        said = await refused(client, "utility_command_start", command_id="u", command="touch made")
        assert said == "Utility command already exists: u"
        said = await refused(client, "utility_command_resize", command_id="u", columns=1, rows=1)
        assert said == "Utility command resize is only supported for PTY commands: u"
        client.say("utility_command_start", command_id="deaf", command="sleep 60")
        said = await refused(client, "utility_command_stdin", command_id="deaf", content="x")
        assert said == "Utility command stdin is not enabled: deaf"
        client.say("utility_command_start", command_id="t", command="sleep 60", terminal_mode="pty")
        huge = {"command_id": "t", "columns": 10**20, "rows": 1}
        assert "up to 65535" in await refused(client, "utility_command_resize", **huge)
        client.say("utility_command_start", command_id="no", command="no-such", shell_mode="direct")
        exited = await client.until("utility_command_exited", command_id="no")
        assert (exited["success"], exited["exit_code"]) == (False, None)
        assert "no-such" in exited["reason"]
    assert not (stage.workspace / "made").exists()


PATTERNS = [
    (["*.py", "[z-a]"], "Not a glob pattern: '[z-a]'"),
    (["x" * 4097], "A pattern has more than 4096 characters"),
    (["x"] * 257, "257 patterns are given; at most 256 are used"),
]


async def test_what_is_watched_is_there_and_inside_and_watched_once(stage: Stage) -> None:
    async with speaking(stage, DONE) as client:
        await client.hello()
        said = await refused(client, "utility_file_watch_start", watch_id="w", root_dir="nowhere")
        assert said == "Utility file watch root directory does not exist: nowhere"
        said = await refused(client, "utility_file_watch_start", watch_id="w", root_dir="..")
        assert said.startswith("Path is outside workspace root: ")
        said = await refused(client, "utility_file_watch_start", watch_id="w", debounce_ms=-1)
        assert said == "debounce_ms is 0 to 60000 milliseconds"
        for patterns, problem in PATTERNS:
            asked = {"watch_id": "w", "exclude_patterns": patterns}
            assert problem in await refused(client, "utility_file_watch_start", **asked)
        client.say("utility_file_watch_start", watch_id="w")
        said = await refused(client, "utility_file_watch_start", watch_id="w")
        assert said == "Utility file watch already exists: w"
    assert len(client.of("utility_file_watch_started")) <= 1


async def test_a_file_is_read_up_to_its_limit_and_inside_the_workspace(stage: Stage) -> None:
    work = stage.workspace
    (work / "exact").write_text("x" * 20)
    (work / "large").write_text("x" * 21)
    (work / "binary").write_bytes(b"a\0b")
    (work / "empty").touch()
    (work / "..data").write_text("fine")
    (work / "sub").mkdir()
    (work / "notes.md").write_text(LINES)
    (work / "out").symlink_to(stage.directory)
    problems = {
        "large": "File is too large: large (21 bytes, at most 20)",
        "binary": "utility_file_read only supports text files: binary",
        "missing": "missing",
        "out/not-there-yet": "Path is outside workspace root: ",
        "sub": "directory",
    }
    environ = {"MAESTRO_HEADLESS_UTILITY_FILE_READ_MAX_BYTES": "20"}
    async with speaking(stage, DONE, environ=environ) as client:
        await client.hello()
        for path, problem in problems.items():
            client.say("utility_file_read", read_id=path, path=path)
            error = await client.until("error")
            assert error["request_id"] == path
            assert problem in error["message"]
        client.say("utility_file_read", read_id="r", path="../notes.md", cwd="sub")
        assert "Path traversal detected" in (await client.until("error"))["message"]
        client.say("utility_file_read", read_id="r", path="notes.md", offset=4)
        said = "Offset 4 is beyond end of file (3 lines total)"
        assert (await client.until("error"))["message"] == said
        for path, lines in (("exact", 1), ("empty", 0), ("..data", 1)):
            client.say("utility_file_read", read_id=path, path=path)
            page = await client.until("utility_file_read_result", read_id=path)
            assert (page["end_line"], page["truncated"]) == (lines, False)
        client.say("utility_file_read", read_id="r", path="notes.md", offset=-3, limit=0)
        page = await client.until("utility_file_read_result", read_id="r")
        assert (page["content"], page["start_line"], page["truncated"]) == ("alpha", 1, True)
        client.say("utility_file_search", search_id="s", query="a", limit=1)
        found = await client.until("utility_file_search_results")
        assert (len(found["results"]), found["truncated"]) == (1, True)
        client.say("utility_file_search", search_id="s", query="  ")
        found = await client.until("utility_file_search_results")
        assert (found["results"], found["truncated"], found["query"]) == ([], False, "")


def test_attachments_of_a_hosted_session_are_files_of_its_workspace(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "in.txt").write_text("inside")
    (tmp_path / "out.txt").write_text("outside")
    (tmp_path / "work" / "link").symlink_to("../out.txt")
    paths = ["in.txt", "../out.txt", "link", str(tmp_path / "out.txt")]
    limits = limits_of({"MAESTRO_HOSTED_RUNNER_MODE": "1"})
    loaded = load(paths, str(tmp_path / "work"), limits, lambda _: True)
    assert (loaded.count, loaded.text) == (1, "\n\n[Attached file: in.txt]\ninside")
    assert len(loaded.problems) == 3
    assert all("Path is outside workspace root: " in problem for problem in loaded.problems)
    assert load(paths, str(tmp_path / "work"), limits_of({}), lambda _: True).count == 4


def test_an_attachment_that_must_not_be_read_is_left_out(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=1")
    (tmp_path / "link").symlink_to(".env")
    (tmp_path / "open.txt").write_text("hello")
    readable = partial(may_read, [Rule("deny", "Read(.env)")], workspace=str(tmp_path))
    loaded = load([".env", "link", "open.txt"], str(tmp_path), Limits(), readable)
    assert loaded.text == "\n\n[Attached file: open.txt]\nhello"
    assert loaded.problems == (
        "Attachment .env: a rule denies reading it",
        "Attachment link: a rule denies reading it",
    )


async def test_attachments_have_limits_of_their_own(stage: Stage) -> None:
    work = stage.workspace
    (work / "exact.txt").write_text("0123456789")
    (work / "large.txt").write_text("01234567890")
    (work / "empty.txt").touch()
    (work / "picture.tiff").write_bytes(b"II*\0")
    (work / "pixel.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    os.mkfifo(work / "pipe.txt")
    refusals = {
        "large.txt": "it is larger than 10 bytes",
        "empty.txt": "it is neither a picture nor text",
        "picture.tiff": "image/tiff is no picture that a model can be shown",
        "pipe.txt": "it is no regular file",
        ".": "it is a directory",
        "a\0b": "",
        "~\0b": "",
    }
    environ = {
        "MAESTRO_HEADLESS_MAX_ATTACHMENT_BYTES": "10",
        "MAESTRO_HEADLESS_MAX_TEXT_CHARS": "4",
    }
    async with speaking(stage, DONE, environ=environ) as client:
        await client.hello()
        await client.prompt("Look.", attachments=["exact.txt", *refusals, "pixel.png"])
    problems = [one["message"] for one in client.of("error")]
    assert len(problems) == len(refusals)
    for (name, reason), problem in zip(refusals.items(), problems, strict=True):
        assert problem.startswith(f"Attachment {name}: ")
        assert problem.endswith(reason)
    assert {one["fatal"] for one in client.of("error")} == {False}
    assert client.of("status")[0]["message"] == "Loaded 2 attachment(s)"
    expected = "Look.\n\n[Attached file: exact.txt]\n0123\n\n[Attached image: pixel.png]"
    assert await prompts_of(stage) == [expected]


async def test_what_is_told_again_is_of_bounded_length(stage: Stage) -> None:
    long = "x" * 1025
    named: list[dict[str, Any]] = [
        {"type": "hello", "protocol_version": long},
        {"type": "hello", "client_info": {"name": long}},
        {"type": "utility_command_start", "command_id": long, "command": "touch made"},
        {"type": "utility_file_watch_start", "watch_id": long},
        {"type": "utility_file_read", "read_id": long, "path": "x"},
        {"type": "tool_response", "call_id": long, "approved": True},
    ]
    async with speaking(stage, DONE) as client:
        await client.hello()
        for message in named:
            client.write(msgspec.json.encode(message) + b"\n")
            error = await client.until("error")
            assert (error["fatal"], error["error_type"]) == (False, "protocol")
            assert "length <= 1024" in error["message"]
        said = await refused(client, "utility_file_search", search_id="s", query="x" * 4097)
        assert said == "query has 4097 characters; at most 4096 are searched for"
        said = await refused(client, "prompt", content="x" * (16 * 1024 * 1024 + 1))
        assert said == "The prompt has 16777217 characters; 16777216 are the most"
        await client.prompt("x" * 1025)
    assert not (stage.workspace / "made").exists()


async def test_the_class_of_an_error_does_not_depend_on_the_names_of_files(stage: Stage) -> None:
    async with speaking(stage, DONE) as client:
        await client.hello()
        client.say("utility_file_read", read_id="r", path="cancel.json")
        assert (await client.until("error"))["error_type"] == "tool"
        await client.prompt("Look.", attachments=["timeout.json"])
    assert [one["error_type"] for one in client.of("error")] == ["tool", "tool"]


def test_a_prompt_brings_so_many_files_and_so_much_of_them(tmp_path: Path) -> None:
    for number in range(8):
        with open(tmp_path / f"{number}.png", "wb") as file:
            file.truncate(10 * 1024 * 1024)
    loaded = load([f"{number}.png" for number in range(8)], str(tmp_path), Limits(), lambda _: True)
    assert (loaded.count, len(loaded.images)) == (7, 7)
    together = "those before it have more than 67108864 bytes together"
    assert loaded.problems == (f"Attachment 7.png: {together}",)
    loaded = load(["0" * 1000] * 300, str(tmp_path), Limits(), lambda _: True)
    assert loaded.count == 0
    assert len(loaded.problems) == 257
    assert max(map(len, loaded.problems)) < 600
    assert loaded.problems[-1] == "44 attachments are left out; at most 256 are taken"


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", "٣", "9" * 20])
async def test_a_limit_that_is_no_number_keeps_it_from_starting(stage: Stage, value: str) -> None:
    name = "MAESTRO_HEADLESS_CLIENT_TIMEOUT_MS"
    async with speaking(stage, DONE, environ={name: value}) as client:
        assert await client.rest() != 0
    (error,) = client.heard
    assert (error["fatal"], error["error_type"]) == (True, "fatal")
    assert error["message"].startswith(f"Headless startup failed: {name} is ")
