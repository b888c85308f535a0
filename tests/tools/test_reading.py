"""`read_file`: text whole or in pages, and pictures."""

import struct
from pathlib import Path

import pytest

from batten.contract.conversation import Image
from batten.contract.facts import ArtifactCreated, ToolFileReadCompleted
from batten.redact.redactor import Redactor
from batten.tools.contract import Tool, ToolOutput
from batten.tools.reading import MAX_PAGE_BYTES, ReadFile
from batten.workspace.files import digest
from batten.workspace.root import Root

from .recording import RecordingContext

SECRET = "s3kr1t-Value-99"


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return ReadFile(Root(str(tmp_path)), Redactor([SECRET]))


async def test_a_whole_file_comes_exactly_as_it_stands(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\n")
    context = RecordingContext()
    output = await tool.run({"file_path": "./a.txt"}, context)
    assert output == ToolOutput(text="one\r\ntwo\n", summary="2 lines")
    assert context.facts[-1] == ToolFileReadCompleted("call_1", "a.txt", 9, 2, "art_1")


async def test_what_was_read_is_kept_with_the_state_of_its_file(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\nthree\n")
    context = RecordingContext()
    output = await tool.run({"file_path": "a", "offset": 2, "limit": 1}, context)
    (created, read) = context.facts
    assert isinstance(created, ArtifactCreated)
    assert isinstance(read, ToolFileReadCompleted)
    assert (created.kind, created.artifact_id) == ("file_snapshot", read.snippet_artifact_id)
    assert created.metadata == {
        "path": "a",
        "revision": digest(b"one\ntwo\nthree\n"),
        "lines": 3,
        "start_line": 2,
        "end_line": 2,
        "snapshot_reason": "tool_read",
    }
    assert context.bodies["art_1"] == output.text.encode()


async def test_a_page_from_the_middle_of_a_secret_shows_nothing_of_it(
    tool: Tool, tmp_path: Path
) -> None:
    body = "\n".join("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" for _ in range(20))
    key = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----"
    (tmp_path / "key").write_text(f"first\n{key}\nafter\n")
    context = RecordingContext()
    output = await tool.run({"file_path": "key", "offset": 10, "limit": 3}, context)
    assert "MII" not in output.text
    assert b"MII" not in context.bodies["art_1"]
    output = await tool.run({"file_path": "key", "offset": 24}, RecordingContext())
    assert output.text == "after\n[lines 24-24 of 24]"


async def test_a_secret_is_not_left_in_half_where_a_page_ends(tool: Tool, tmp_path: Path) -> None:
    line = "x" * (MAX_PAGE_BYTES - 5)
    (tmp_path / "a").write_text(f"{line} {SECRET}")
    output = await tool.run({"file_path": "a"}, RecordingContext())
    assert SECRET[:4] not in output.text


async def test_a_page_says_where_to_read_on(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    output = await tool.run({"file_path": "a", "offset": 3, "limit": 2}, RecordingContext())
    assert output.text == "line 3\nline 4\n[lines 3-4 of 10; read on with offset 5]"
    output = await tool.run({"file_path": "a", "offset": 9}, RecordingContext())
    assert output.text == "line 9\nline 10\n[lines 9-10 of 10]"


async def test_a_huge_file_comes_in_pages_that_join_to_it(tool: Tool, tmp_path: Path) -> None:
    lines = [f"{n} {'x' * 90}" for n in range(5000)]
    (tmp_path / "big").write_text("\n".join(lines) + "\n")
    read: list[str] = []
    while len(read) < len(lines):
        offset = len(read) + 1
        output = await tool.run({"file_path": "big", "offset": offset}, RecordingContext())
        assert len(output.text) <= MAX_PAGE_BYTES + 100
        read += output.text.split("\n")[:-1]
    assert read == lines


async def test_an_endless_line_is_cut_and_said_so(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x" * (MAX_PAGE_BYTES + 1))
    output = await tool.run({"file_path": "a"}, RecordingContext())
    assert output.text == "x" * MAX_PAGE_BYTES + "\n[lines 1-1 of 1; the last line was cut]"


@pytest.mark.parametrize(
    ("head", "mime"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF" + struct.pack("<I", 4) + b"WEBP", "image/webp"),
    ],
)
async def test_a_picture_is_shown(tool: Tool, tmp_path: Path, head: bytes, mime: str) -> None:
    data = head + b"\0rest"
    (tmp_path / "picture").write_bytes(data)
    output = await tool.run({"file_path": "picture"}, RecordingContext())
    assert output.images == (Image(mime, data),)
    assert output.text == f"Image picture ({mime}, {len(data)} bytes)"


@pytest.mark.parametrize(
    ("path", "kind", "text"),
    [
        ("missing", "not_found", "Error: Could not read file: missing"),
        ("../x", "workspace_violation", "Error: Path is outside workspace root: ../x"),
        ("binary", "binary_file", "Error: Only text files can be read: binary"),
        (".", "is_directory", "Error: Path is a directory: ."),
    ],
)
async def test_a_failure_is_told_and_leaves_no_fact(
    tool: Tool, tmp_path: Path, path: str, kind: str, text: str
) -> None:
    (tmp_path / "binary").write_bytes(b"\0\1\2")
    context = RecordingContext()
    output = await tool.run({"file_path": path}, context)
    assert (output.text, output.error_kind, output.is_error) == (text, kind, True)
    assert context.facts == []


def test_rules_see_where_a_path_really_leads(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / ".env").touch()
    (tmp_path / "innocent").symlink_to(".env")
    spellings = [".env", "./.env", "x/../.env", "innocent", str(tmp_path / ".env")]
    assert {tool.subject({"file_path": each}) for each in spellings} == {".env"}
    assert tool.subject({"file_path": "/etc/passwd"}) == "/etc/passwd"
