"""`glob` and `grep` as the model sees them."""

from pathlib import Path

import pytest

from batten.contract.facts import ToolGlobCompleted, ToolGrepCompleted
from batten.contract.facts.tool import GrepMatch
from batten.redact.redactor import Redactor
from batten.tools.searching import Glob, Grep
from batten.workspace.root import Root

from .recording import RecordingContext


@pytest.fixture
def root(tmp_path: Path) -> Root:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.py").write_text("one\ntwo\nthree\nfour\nfive\nsix\ntwo\n")
    (tmp_path / "b.py").write_text("two\n")
    return Root(str(tmp_path))


async def test_glob_tells_paths_from_the_root(root: Root) -> None:
    context = RecordingContext()
    output = await Glob(root).run({"pattern": "*.py", "path": "src"}, context)
    assert (output.text, output.summary) == ("src/a.py", "1 files")
    assert context.facts == [ToolGlobCompleted("call_1", "*.py", ["src/a.py"], 1, False)]
    output = await Glob(root).run({"pattern": "*.py"}, context)
    assert output.text == "b.py\nsrc/a.py"


async def test_finding_nothing_is_said_and_recorded(root: Root) -> None:
    context = RecordingContext()
    assert (await Glob(root).run({"pattern": "*.c"}, context)).text == (
        "No files matched the pattern."
    )
    assert (await Grep(root).run({"pattern": "zzz"}, context)).text == "No matches found."
    assert context.facts == [
        ToolGlobCompleted("call_1", "*.c", [], 0, False),
        ToolGrepCompleted("call_1", "zzz", 2, [], 0, False),
    ]


async def test_grep_tells_file_line_and_text(root: Root) -> None:
    context = RecordingContext()
    output = await Grep(root).run({"pattern": "two"}, context)
    assert output.text == "b.py:1:two\nsrc/a.py:2:two\nsrc/a.py:7:two"
    matches = [GrepMatch("b.py", 1, "two")]
    matches += [GrepMatch("src/a.py", 2, "two"), GrepMatch("src/a.py", 7, "two")]
    assert context.facts == [ToolGrepCompleted("call_1", "two", 2, matches, 3, False)]


async def test_grep_in_a_directory_or_a_file_still_tells_paths_from_the_root(root: Root) -> None:
    for path in ("src", "src/a.py"):
        arguments = {"pattern": "four", "path": path}
        output = await Grep(root).run(arguments, RecordingContext())
        assert output.text == "src/a.py:4:four"


async def test_lines_around_a_match_are_marked_and_gaps_shown(root: Root) -> None:
    arguments = {"pattern": "two", "context": 1, "path": "src"}
    output = await Grep(root).run(arguments, RecordingContext())
    assert output.text.split("\n") == [
        "src/a.py-1-one",
        "src/a.py:2:two",
        "src/a.py-3-three",
        "--",
        "src/a.py-6-six",
        "src/a.py:7:two",
    ]


@pytest.mark.parametrize(
    ("mode", "told"),
    [("files_with_matches", "b.py\nsrc/a.py"), ("count", "b.py:1\nsrc/a.py:2")],
)
async def test_grep_can_name_files_or_count(root: Root, mode: str, told: str) -> None:
    arguments = {"pattern": "two", "output_mode": mode}
    assert (await Grep(root).run(arguments, RecordingContext())).text == told


async def test_a_cut_search_says_there_is_more(root: Root) -> None:
    output = await Grep(root).run({"pattern": "two", "limit": 1}, RecordingContext())
    assert output.text == "b.py:1:two\n[there are more matches; narrow the search]"


async def test_a_fact_shows_only_as_much_as_it_has_room_for(root: Root) -> None:
    Path(root.path, "many").write_text(f"two{'x' * 1000}\n" * 900)
    context = RecordingContext()
    await Grep(root).run({"pattern": "two"}, context)
    fact = context.facts[0]
    assert isinstance(fact, ToolGrepCompleted)
    assert fact.truncated
    assert 0 < len(fact.matches) < fact.match_count == 903
    assert sum(len(match.text) for match in fact.matches) <= 64 * 1024


@pytest.mark.parametrize("cut_at", [400, 2000])
async def test_a_secret_is_not_left_in_half_where_a_line_is_cut(root: Root, cut_at: int) -> None:
    secret = "s3kr1t-Value-99"
    line = "two " + "x " * 998
    (Path(root.path) / "long").write_text(f"{line[: cut_at - 6]} {secret}\n")
    context = RecordingContext(Redactor([secret]))
    output = await Grep(root).run({"pattern": "two", "path": "long"}, context)
    assert secret[:4] not in output.text
    assert secret[:4] not in str(context.facts)


@pytest.mark.parametrize("tool", [Glob, Grep])
async def test_searching_outside_is_refused(root: Root, tool: type[Glob | Grep]) -> None:
    context = RecordingContext()
    output = await tool(root).run({"pattern": "x", "path": "../.."}, context)
    assert output.text == "Error: Path is outside workspace root: ../.."
    assert (output.error_kind, context.facts) == ("workspace_violation", [])


async def test_a_broken_pattern_is_told_in_words(root: Root) -> None:
    output = await Grep(root).run({"pattern": "(x"}, RecordingContext())
    assert output.text.startswith("Error: grep exited with code 2: ")
    assert "unclosed group" in output.text


_KEY_LINES = ("q" + "Zk9/" * 15, "mZ4x" * 16, "Qx7+" * 16, "b3BlbnNzaC1rZXk+c2hvcnQ=")


@pytest.mark.parametrize("multiline", [False, True])
async def test_lines_from_the_middle_of_a_private_key_are_not_told(
    root: Root, tmp_path: Path, multiline: bool
) -> None:
    frame = "-----{} OPENSSH PRIVATE KEY-----"
    lines = [frame.format("BEGIN"), *_KEY_LINES, frame.format("END"), "a line after it"]
    (tmp_path / "id_test").write_text("\n".join(lines))
    context = RecordingContext(redactor=Redactor())
    pattern = "mZ4x(?s:.)*c2hvcnQ" if multiline else "mZ4x|Qx7|c2hvcnQ|after"
    arguments = {"pattern": pattern, "path": "id_test", "multiline": multiline}
    output = await Grep(root).run(arguments, context)
    for text in (output.text, repr(context.facts)):
        assert "<redacted>" in text
        assert not any(line[20:] in text for line in _KEY_LINES[1:])
    assert ("id_test:7:a line after it" in output.text) is not multiline


async def test_lines_that_only_look_like_a_key_are_told(root: Root, tmp_path: Path) -> None:
    (tmp_path / "digests.txt").write_text("\n".join(_KEY_LINES))
    output = await Grep(root).run({"pattern": "mZ4x"}, RecordingContext())
    assert output.text == f"digests.txt:2:{_KEY_LINES[1]}"
