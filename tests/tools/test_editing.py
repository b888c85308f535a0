"""The tools that change files: a durable, exact patch first, then the change."""

import os
from pathlib import Path
from typing import Any

import pytest

from batten.contract.facts import (
    ArtifactCreated,
    ArtifactUpdated,
    Fact,
    ToolEditProposed,
    ToolFileWriteProposed,
    ToolMultiEditProposed,
)
from batten.redact.redactor import Redactor
from batten.tools.contract import ToolOutput
from batten.tools.editing import EditFile, MultiEdit, WriteFile
from batten.workspace import files, patches
from batten.workspace.root import Root

from .recording import RecordingContext


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(str(tmp_path))


def get(root: Root, path: str) -> bytes:
    return Path(root.path, path).read_bytes()


class Watchful(RecordingContext):
    """Notes what a file held at the moment each proposal was recorded."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.at_proposal: list[bytes | None] = []

    def record(self, *facts: Fact) -> Any:
        if any(fact.type.endswith(".proposed") for fact in facts):
            self.at_proposal.append(self._path.read_bytes() if self._path.exists() else None)
        if any(fact.type.endswith(".applied") for fact in facts):
            proposal = next(n for n, type_ in enumerate(self.types) if type_.endswith(".proposed"))
            assert self.durable > proposal
        return super().record(*facts)


async def test_a_new_file_is_proposed_durably_then_written(root: Root, tmp_path: Path) -> None:
    context = Watchful(tmp_path / "src/new.py")
    arguments = {"file_path": "src/new.py", "content": "one\ntwo\n"}
    output = await WriteFile(root).run(arguments, context)
    assert output == ToolOutput(text="Wrote 8 bytes to src/new.py", artifact_id="art_1")
    assert context.types == [
        "artifact.created",
        "tool.file_write.proposed",
        "tool.file_write.applied",
        "artifact.updated",
    ]
    assert context.at_proposal == [None]
    assert context.facts[1] == ToolFileWriteProposed(
        "call_1", "src/new.py", "art_1", "new file, 2 lines", auto_apply=True
    )
    assert context.facts[3] == ArtifactUpdated("art_1", "status", "proposed", "applied")
    assert get(root, "src/new.py") == b"one\ntwo\n"


async def test_writing_an_existing_file_is_an_edit(root: Root, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old\n")
    context = Watchful(tmp_path / "a")
    await WriteFile(root).run({"file_path": "a", "content": "new\n"}, context)
    assert context.types[1:3] == ["tool.edit.proposed", "tool.edit.applied"]
    assert context.at_proposal == [b"old\n"]


async def test_writing_what_is_there_already_changes_and_records_nothing(
    root: Root, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"same")
    context = RecordingContext()
    output = await WriteFile(root).run({"file_path": "a", "content": "same"}, context)
    assert output == ToolOutput(text="Wrote 4 bytes to a")
    assert context.facts == []


async def test_a_patch_artifact_names_base_stats_and_sealed_body(
    root: Root, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"x = 1\n")
    context = RecordingContext()
    arguments = {"file_path": "a", "old_string": "1", "new_string": "2"}
    output = await EditFile(root).run(arguments, context)
    assert output == ToolOutput(text="Applied edit to a", artifact_id="art_1")
    created = context.facts[0]
    assert created == ArtifactCreated(
        artifact_id="art_1",
        kind="patch",
        size_bytes=len(context.bodies["art_1"]),
        summary="a: 1 hunk, +1/-1",
        mime_type="text/x-diff",
        status="proposed",
        metadata={
            "target_path": "a",
            "base_revision": files.digest(b"x = 1\n"),
            "stats": {"additions": 1, "deletions": 1, "hunks": 1},
            "produced_by_tool_call_id": "call_1",
            "sealed_artifact_id": "sealed_1",
        },
    )
    assert context.facts[1] == ToolEditProposed("call_1", "a", "art_1", "1 hunk, +1/-1 line", True)
    body = patches.decode(context.sealed["sealed_1"])
    patches.apply(root, patches.revert(root, [body]))
    assert get(root, "a") == b"x = 1\n"


async def test_a_secret_is_not_in_the_diff_and_still_reverts_exactly(
    root: Root, tmp_path: Path
) -> None:
    secret = "s3cr3t-value-of-the-environment"
    before = f"key = '{secret}'\nx = 1\n".encode()
    (tmp_path / "a").write_bytes(before)
    context = RecordingContext(Redactor([secret]))
    await EditFile(root).run({"file_path": "a", "old_string": "1", "new_string": "2"}, context)
    assert secret.encode() not in context.bodies["art_1"]
    assert b"+x = 2" in context.bodies["art_1"]
    assert secret not in repr(context.facts)
    body = patches.decode(context.sealed["sealed_1"])
    patches.apply(root, patches.revert(root, [body]))
    assert get(root, "a") == before


@pytest.mark.parametrize(
    ("text", "old", "told"),
    [
        ("abc", "abc", "Applied edit to f"),
        ("a  b\n", "a b", "Applied edit to f (whitespace-normalized match)"),
        ("  a\n  b\n", "a\nb", "Applied edit to f (indent-flexible match)"),
        ("f( a )\n", "f(a)", "Applied edit to f (line-fuzzy match)"),
        (
            "a a",
            "a",
            "Error: old_string is not unique in f (found multiple matches). "
            "Use replace_all: true to replace all, or provide more context.",
        ),
        ("a", "zz", "Error: old_string not found in f"),
        (
            "alpha\n",
            "alphabet",
            "Error: old_string not found in f. Closest match near line 1:\nalpha\n",
        ),
    ],
)
async def test_what_the_model_is_told_of_an_edit(
    root: Root, tmp_path: Path, text: str, old: str, told: str
) -> None:
    (tmp_path / "f").write_text(text)
    context = RecordingContext()
    arguments = {"file_path": "f", "old_string": old, "new_string": "new"}
    output = await EditFile(root).run(arguments, context)
    assert output.text == told
    assert output.is_error is told.startswith("Error")
    assert output.is_error is (context.facts == [])


async def test_replacing_everywhere_is_told_with_its_count(root: Root, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a a")
    arguments = {"file_path": "f", "old_string": "a", "new_string": "b", "replace_all": True}
    output = await EditFile(root).run(arguments, RecordingContext())
    assert (output.text, get(root, "f")) == ("Replaced 2 occurrences in f", b"b b")


async def test_failures_are_told_and_touch_nothing(root: Root, tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    context = RecordingContext()
    edit = {"old_string": "a", "new_string": "b"}
    told = [
        (await EditFile(root).run({"file_path": "missing", **edit}, context)).text,
        (await EditFile(root).run({"file_path": "../x", **edit}, context)).text,
        (await WriteFile(root).run({"file_path": "/etc/x", "content": ""}, context)).text,
        (await WriteFile(root).run({"file_path": "dir", "content": ""}, context)).text,
        (await WriteFile(root).run({"file_path": "a", "content": "\ud800"}, context)).text,
    ]
    assert told == [
        "Error: File not found: missing",
        "Error: Path is outside workspace root: ../x",
        "Error: Path is outside workspace root: /etc/x",
        "Error: Could not write file: Path is a directory: dir",
        "Error: Could not write file: Text is not valid Unicode: surrogates not allowed",
    ]
    assert context.facts == []
    assert os.listdir(root.path) == ["dir"]


async def test_several_edits_are_one_batch_of_patches(root: Root, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1 2\n")
    (tmp_path / "b").write_text("3\n")
    context = Watchful(tmp_path / "a")
    edits = [
        {"old_string": "1", "new_string": "one"},
        {"file_path": "b", "old_string": "3", "new_string": "three"},
        {"old_string": "one 2", "new_string": "one two"},
    ]
    output = await MultiEdit(root).run({"file_path": "a", "edits": edits}, context)
    assert output.text == "Applied 3 edits to a, b"
    assert context.types == [
        "artifact.created",
        "artifact.created",
        "tool.multi_edit.proposed",
        "tool.multi_edit.applied",
        "artifact.updated",
        "artifact.updated",
    ]
    assert context.facts[2] == ToolMultiEditProposed(
        "call_1",
        ["art_1", "art_2"],
        "a: 1 hunk, +1/-1 line; b: 1 hunk, +1/-1 line",
        auto_apply=True,
    )
    assert (get(root, "a"), get(root, "b")) == (b"one two\n", b"three\n")
    assert context.at_proposal == [b"1 2\n"]


async def test_a_batch_with_one_misfit_changes_nothing(root: Root, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n")
    context = RecordingContext()
    edits = [
        {"file_path": "a", "old_string": "1", "new_string": "2"},
        {"file_path": "a", "old_string": "1", "new_string": "3"},
    ]
    output = await MultiEdit(root).run({"edits": edits}, context)
    assert output.text == "Error: Edit 2: old_string not found in a"
    assert (get(root, "a"), context.facts) == (b"1\n", [])
    output = await MultiEdit(root).run({"edits": [{"old_string": "1", "new_string": "2"}]}, context)
    assert output.text == "Error: an edit names no file: give it a file_path"


async def test_a_file_changed_while_its_patch_was_recorded_rejects_the_patch(
    root: Root, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("1\n")

    class Meddling(RecordingContext):
        def record(self, *facts: Fact) -> Any:
            if any(isinstance(fact, ToolEditProposed) for fact in facts):
                (tmp_path / "a").write_text("somebody else\n")
            return super().record(*facts)

    context = Meddling()
    arguments = {"file_path": "a", "old_string": "1", "new_string": "2"}
    output = await EditFile(root).run(arguments, context)
    assert output.text == "Error: Changed since the patch was made: a"
    assert output.error_kind == "base_changed"
    assert context.facts[-1] == ArtifactUpdated("art_1", "status", "proposed", "rejected")
    assert get(root, "a") == b"somebody else\n"


def test_a_batch_is_matched_by_every_file_it_names(root: Root) -> None:
    edit = {"old_string": "a", "new_string": "b"}
    edits = [{"file_path": "x/../a", **edit}, edit, {"file_path": "./a", **edit}]
    assert MultiEdit(root).subject({"file_path": "b", "edits": edits}) == "a\nb"


async def test_edits_under_review_are_proposed_and_build_on_each_other(
    root: Root, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"one\n")
    context = RecordingContext()
    context.auto_apply = False

    first = await EditFile(root).run(
        {"file_path": "a", "old_string": "one", "new_string": "two"}, context
    )
    second = await WriteFile(root).run({"file_path": "a", "content": "two\nthree\n"}, context)
    batch = [{"file_path": "a", "old_string": "three", "new_string": "3"}]
    third = await MultiEdit(root).run({"edits": batch}, context)

    assert get(root, "a") == b"one\n"
    assert all("Nothing is written" in output.text for output in (first, second, third))
    assert [type_ for type_ in context.types if type_.startswith("tool.")] == [
        "tool.edit.proposed",
        "tool.edit.proposed",
        "tool.multi_edit.proposed",
    ]
    assert not [type_ for type_ in context.types if type_ == "artifact.updated"]
    proposals = [fact for fact in context.facts if isinstance(fact, ToolEditProposed)]
    assert [fact.auto_apply for fact in proposals] == [False, False]
    bodies = [patches.decode(data) for data in context.sealed.values()]
    assert [(body.before, body.after) for body in bodies] == [
        (b"one\n", b"two\n"),
        (b"two\n", b"two\nthree\n"),
        (b"two\nthree\n", b"two\n3\n"),
    ]
    patches.apply(root, bodies)
    assert get(root, "a") == b"two\n3\n"
