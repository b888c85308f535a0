"""`--record`: the results and assertions it writes, and replays that compare a tree with them."""

import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.stage import bash, call, end, say

from .invoking import Shell

WRITE = call("write_file", "w1", file_path="notes/new.txt", content="hello\n")
EDITS = [{"old_string": "one", "new_string": "two"}]
NOISE = "(printf '\\377'; head -c 9 /dev/urandom)"
"""No text, and different each time."""
FRAMES = (
    [say("I look."), bash("grep -c one data.txt", "g1")],
    [WRITE, call("multi_edit", "m1", file_path="data.txt", edits=EDITS)],
    [bash(f"rm old.txt; cp data.txt copy.txt; {NOISE} > noise.bin; exit 3", "b1")],
    [say("Done."), end()],
)


def fill(tree: Path) -> Path:
    """A workspace as it is before the run."""
    tree.mkdir(exist_ok=True)
    (tree / "data.txt").write_text("one\n")
    (tree / "old.txt").write_text("old\n")
    return tree


def record(shell: Shell, *flags: str, frames: Any = FRAMES) -> Path:
    """Record a run in the stage's workspace."""
    fill(shell.stage.workspace)
    path = shell.stage.directory / "recorded.json"
    mode = () if "--deny" in flags else ("--permission-mode", "dontAsk")
    shell.play(*frames, flags=["--record", str(path), *mode, *flags], prompt="tidy up")
    return path


def replay(shell: Shell, path: Path, tree: Path) -> Any:
    return shell("scenario", "run", str(path), "--workspace", str(tree))


def test_the_recording_has_results_and_assertions(shell: Shell) -> None:
    recorded = msgspec.json.decode(record(shell).read_bytes())
    first, _, third, _ = recorded["frames"]
    seen = first["statements"][1]
    assert seen["expectedResult"] == "success"
    assert seen["result"]["exitCode"] == 0
    assert seen["result"]["output"].startswith("1")
    assert (
        third["statements"][0]["expectedResult"],
        third["statements"][0]["result"]["exitCode"],
    ) == (
        "error",
        3,
    )
    assert recorded["prompts"] == ["tidy up"]
    assert recorded["assertions"] == [
        {"id": "outcome", "kind": "outcome", "outcome": "completed"},
        {"id": "exit:g1", "kind": "exit_code", "toolCallId": "g1", "exitCode": 0},
        {"id": "exit:b1", "kind": "exit_code", "toolCallId": "b1", "exitCode": 3},
        {"id": "file:copy.txt", "kind": "file_contents", "path": "copy.txt", "equals": "two\n"},
        {"id": "file:data.txt", "kind": "file_contents", "path": "data.txt", "equals": "two\n"},
        {"id": "file:noise.bin", "kind": "file_exists", "path": "noise.bin"},
        {"id": "file:notes/new.txt", "kind": "file_contents", "path": "notes/new.txt",
         "equals": "hello\n"},
        {"id": "file:old.txt", "kind": "file_missing", "path": "old.txt"},
    ]  # fmt: skip


def test_a_replay_on_the_same_tree_passes(shell: Shell, tmp_path: Path) -> None:
    path = record(shell)
    said = replay(shell, path, fill(tmp_path / "again"))
    assert said.code == 0, said.out.decode()
    assert shell("scenario", "validate", str(path)).code == 0


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("data.txt", "nil\n", "fail  exit:g1"),
        ("data.txt", "one more\n", "fail  file:data.txt"),
        ("notes", None, "fail  file:notes/new.txt"),
    ],
)
def test_a_replay_on_a_changed_tree_fails(
    shell: Shell, tmp_path: Path, name: str, content: str | None, words: str
) -> None:
    path = record(shell)
    tree = fill(tmp_path / "changed")
    (tree / name).write_text("in the way" if content is None else content)
    said = replay(shell, path, tree)
    assert said.code == 1
    if words == "fail  exit:g1":
        assert "recorded: the run ended in model_error: " in said.err
        assert "g1" in said.err
    if words != "fail  exit:g1":  # there the mismatch ends the run first
        assert words in said.out.decode()


def test_a_replay_fails_where_a_file_that_was_only_read_differs(
    shell: Shell, tmp_path: Path
) -> None:
    read = call("read_file", "r1", file_path="data.txt")
    path = record(shell, frames=([read], [say("It says one."), end()]))
    tree = fill(tmp_path / "again")
    assert replay(shell, path, tree).code == 0
    (tree / "data.txt").write_text("two\n")
    said = replay(shell, path, tree)
    assert said.code == 1
    assert "fail  file:data.txt" in said.out.decode()


WAIT = "until test -e ready; do sleep 0.1; done"
SCHEMA = '{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}'


@pytest.mark.parametrize(
    ("outcome", "flags", "frames"),
    [
        ("max_turns", ["--max-turns", "2"], [[bash("true", f"c{turn}")] for turn in range(3)]),
        ("timeout", ["--max-seconds", "1"], [[bash(WAIT, "c1")], [say("Hm.")]]),
        (
            "cancelled",
            [],
            [[bash(f"test -e ready || kill -TERM {os.getpid()}; {WAIT}", "c1")], [say("Hm.")]],
        ),
        ("schema_invalid", ["--json-schema", SCHEMA], [[say("No."), end()]] * 3),
        ("denied", ["--fail-on", "denied"], [[bash("curl x", "c1")], [say("Hm."), end()]]),
    ],
)
def test_a_run_that_was_stopped_completes_where_nothing_stops_it(
    shell: Shell, tmp_path: Path, outcome: str, flags: list[str], frames: Any
) -> None:
    path = record(shell, *flags, "--deny", "bash(curl *)", "--auto-allow", frames=frames)
    recorded = msgspec.json.decode(path.read_bytes())
    assert recorded["assertions"][0] == {
        "id": "outcome",
        "kind": "outcome",
        "outcome": "completed",
        "note": f"the recorded run ended in {outcome}",
    }
    tree = fill(tmp_path / "again")
    (tree / "ready").touch()
    said = replay(shell, path, tree)
    assert said.code == 0, said.out.decode()


def test_a_denied_call_is_denied_again(shell: Shell, tmp_path: Path) -> None:
    frames = [bash("touch forbidden.txt", "d1")], [say("Done."), end()]
    path = record(shell, "--deny", "bash(touch *)", "--auto-allow", frames=frames)
    recorded = msgspec.json.decode(path.read_bytes())
    assert recorded["frames"][0]["statements"][0]["result"]["ending"] == "denied"
    tree = fill(tmp_path / "again")
    said = replay(shell, path, tree)
    assert said.code == 0, said.out.decode()
    assert not (tree / "forbidden.txt").exists()


def test_every_prompt_of_a_session_is_played_again(shell: Shell, tmp_path: Path) -> None:
    frames = [say("One."), end()], [bash("echo hi > made.txt", "b1")], [say("Two."), end()]
    path, model = shell.stage.directory / "recorded.json", shell.stage.scenario(*frames)
    lines = b"".join(
        msgspec.json.encode({"type": "user", "content": text}) + b"\n"
        for text in ("first", "second")
    )
    flags = ["--model", model, "--record", str(path), "--permission-mode", "dontAsk"]
    streams = ["--input-format", "stream-json", "--output-format", "stream-json"]
    assert shell(*flags, *streams, "--sandbox", "none", stdin=lines).code == 0
    assert msgspec.json.decode(path.read_bytes())["prompts"] == ["first", "second"]
    tree = tmp_path / "again"
    tree.mkdir()
    assert replay(shell, path, tree).code == 0
    assert (tree / "made.txt").read_text() == "hi\n"


def test_a_file_with_a_secret_is_not_copied_into_the_recording(shell: Shell) -> None:
    shell.set(ACME_API_KEY="swordfish-1234567890")
    write = call("write_file", "w1", file_path="key.txt", content="swordfish-1234567890")
    path = record(shell, frames=([write], [say("Done."), end()]))
    assert b"swordfish" not in path.read_bytes()
    assert b'"file_exists"' in path.read_bytes()
    shutil.rmtree(shell.stage.workspace)


def test_the_recording_itself_is_no_result(shell: Shell, tmp_path: Path) -> None:
    path = shell.stage.workspace / "recorded.json"
    edits = [{"old_string": "one", "new_string": "two"}]
    absolute = str(fill(shell.stage.workspace) / "data.txt")
    frames = (
        [call("multi_edit", "m1", file_path=absolute, edits=edits)],
        [bash("touch recorded.json", "b1")],
        [say("Done."), end()],
    )
    shell.play(*frames, flags=["--record", str(path), "--permission-mode", "dontAsk"])
    asserted = [one["id"] for one in msgspec.json.decode(path.read_bytes())["assertions"]]
    assert asserted == ["outcome", "exit:b1", "file:data.txt"]
