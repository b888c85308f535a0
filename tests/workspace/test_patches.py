"""Patches: kept changes that apply once, whole or not at all, and come undone exactly."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batten.contract.errors import CallerError, Conflict, PeerError, Refused
from batten.workspace import diff, patches
from batten.workspace.patches import BaseChanged, PatchBody
from batten.workspace.root import Root

shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
contents = st.none() | st.binary(max_size=200)
lines = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\r\n", b"\n", b"d"]), max_size=40).map(
    b"".join
)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(str(tmp_path))


def put(root: Root, path: str, data: bytes | None) -> None:
    if data is None:
        Path(root.path, path).unlink(missing_ok=True)
    else:
        Path(root.path, path).write_bytes(data)


def get(root: Root, path: str) -> bytes | None:
    file = Path(root.path, path)
    return file.read_bytes() if file.exists() else None


def reference_apply(before: bytes, hunks: bytes) -> bytes:
    """What the hunks of a unified diff make of a file, by the plainest reading of the format."""
    source = [line + b"\n" for line in before.split(b"\n")]
    source[-1] = source[-1][:-1]
    out: list[bytes] = []
    at, mark = 0, b""
    for line in hunks.split(b"\n")[:-1]:
        if line.startswith(b"\\"):
            if mark != b"-":
                out[-1] = out[-1].removesuffix(b"\n")
            continue
        mark = line[:1]
        if mark == b"@":
            start, _, size = line.split(b" ")[1][1:].partition(b",")
            first = int(start) - (0 if size == b"0" else 1)
            out += source[at:first]
            at = first
        else:
            out += [line[1:] + b"\n"] if mark in b"+ " else []
            at += 1 if mark in b"- " else 0
    return b"".join(out + source[at:])


@given(before=contents, after=contents)
@shared
def test_any_change_applies_and_reverts_to_the_same_bytes(
    root: Root, before: bytes | None, after: bytes | None
) -> None:
    put(root, "f", before)
    if before == after:
        with pytest.raises(Conflict):
            patches.propose("f", before, after)
        return
    body = patches.decode(patches.encode(patches.propose("f", before, after)))
    patches.apply(root, [body])
    assert get(root, "f") == after
    patches.apply(root, patches.revert(root, [body]))
    assert get(root, "f") == before


@given(before=lines, after=lines)
def test_the_diff_makes_the_after_of_the_before(before: bytes, after: bytes) -> None:
    made = diff.unified("f", before, after)
    hunks = made.body[made.body.find(b"@@ ") :] if b"@@ " in made.body else b""
    assert reference_apply(before, hunks) == after
    changed = [line for line in hunks.split(b"\n") if line[:1] in (b"+", b"-")]
    assert made.stats == diff.Stats(
        additions=sum(line.startswith(b"+") for line in changed),
        deletions=sum(line.startswith(b"-") for line in changed),
        hunks=hunks.count(b"\n@@ ") + hunks.startswith(b"@@ "),
    )


@pytest.mark.parametrize(
    "path", ["plain.txt", "with space.txt", 'quo"te\\back', "tab\there", "néw/ünï.txt", "new\nline"]
)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\nb\nc\n", b"a\nB\nc"),
        (b"a\nb", b"a\nb\n"),
        (None, b"new\nfile\n"),
        (None, b""),
        (b"gone\n", None),
        (b"", None),
        (b"x\n" * 30 + b"y\n" + b"x\n" * 30, b"x\n" * 29 + b"z\xff\n" + b"x\n" * 31),
        (b"a\r\nb\r\n", b"a\r\nc\r\n"),
    ],
)
def test_git_applies_the_diff_to_the_same_bytes(
    root: Root, path: str, before: bytes | None, after: bytes | None
) -> None:
    Path(root.path, path).parent.mkdir(exist_ok=True)
    put(root, path, before)
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"],
        cwd=root.path,
        input=diff.unified(path, before, after).body,
        check=True,
        env={"PATH": os.environ["PATH"], "GIT_CEILING_DIRECTORIES": os.path.dirname(root.path)},
    )
    assert get(root, path) == after


def test_a_diff_is_written_as_people_know_it() -> None:
    made = diff.unified("src/a.py", b"one\ntwo\nthree\n", b"one\n2\nthree\nfour")
    assert made.text == (
        "diff --git a/src/a.py b/src/a.py\n"
        "--- a/src/a.py\n+++ b/src/a.py\n"
        "@@ -1,3 +1,4 @@\n one\n-two\n+2\n three\n+four\n\\ No newline at end of file\n"
    )
    assert made.stats == diff.Stats(additions=2, deletions=1, hunks=1)


def test_creation_and_deletion_name_dev_null() -> None:
    assert diff.unified("a", None, b"x\n").text == (
        "diff --git a/a b/a\nnew file mode 100644\n--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+x\n"
    )
    assert diff.unified("a", b"x\n", None).text == (
        "diff --git a/a b/a\ndeleted file mode 100644\n--- a/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    )


def test_binary_content_is_named_and_not_shown() -> None:
    made = diff.unified("logo.png", b"\x89PNG\0old", b"\x89PNG\0new")
    assert made.text.endswith("Binary files a/logo.png and b/logo.png differ\n")
    assert made.stats == diff.Stats(0, 0, 0)


def test_a_small_change_in_a_large_file_is_a_small_diff() -> None:
    before = [b"line %d\n" % number for number in range(200_000)]
    after = [*before[:100_000], b"changed\n", *before[100_001:]]
    made = diff.unified("big", b"".join(before), b"".join(after))
    assert made.stats == diff.Stats(additions=1, deletions=1, hunks=1)
    assert made.body.count(b"\n") == 12


def test_a_large_file_rewritten_is_one_replaced_block() -> None:
    before = b"".join(b"%d\n" % (number % 97) for number in range(50_000))
    after = b"".join(b"%d\n" % (number % 89) for number in range(60_000, 0, -1))
    made = diff.unified("big", before, after)
    assert made.stats.hunks == 1
    assert reference_apply(before, made.body[made.body.find(b"@@ ") :]) == after


def test_a_patch_whose_base_changed_is_refused_by_name_and_writes_nothing(root: Root) -> None:
    put(root, "same", b"1")
    put(root, "changed", b"2")
    put(root, "exists", b"3")
    os.mkdir(f"{root.path}/directory")
    bodies = [
        PatchBody("same", b"1", b"one"),
        PatchBody("changed", b"not 2", b"two"),
        PatchBody("exists", None, b"three"),
        PatchBody("missing", b"4", b"four"),
        PatchBody("directory", b"5", b"five"),
    ]
    with pytest.raises(BaseChanged) as caught:
        patches.apply(root, bodies)
    assert caught.value.paths == ("changed", "exists", "missing", "directory")
    assert "changed, exists, missing, directory" in caught.value.message
    assert [get(root, name) for name in ("same", "changed", "exists")] == [b"1", b"2", b"3"]


def test_a_revert_is_refused_by_name_when_the_file_is_not_as_the_patch_left_it(root: Root) -> None:
    first, second = PatchBody("a", b"1", b"2"), PatchBody("b", None, b"3")
    put(root, "a", b"1")
    patches.apply(root, [first, second])
    put(root, "b", b"edited by hand")
    with pytest.raises(BaseChanged) as caught:
        patches.revert(root, [first, second])
    assert caught.value.paths == ("b",)
    assert get(root, "a") == b"2"


def test_a_whole_run_is_reverted_through_every_patch_of_a_file(root: Root) -> None:
    put(root, "a", b"0")
    run = [
        PatchBody("a", b"0", b"1"),
        PatchBody("new", None, b"x"),
        PatchBody("./a", b"1", b"2"),
        PatchBody("new", b"x", None),
    ]
    patches.apply(root, run)
    assert (get(root, "a"), get(root, "new")) == (b"2", None)
    inverses = patches.revert(root, run)
    assert inverses == tuple(patches.inverse(body) for body in reversed(run))
    patches.apply(root, inverses)
    assert (get(root, "a"), get(root, "new")) == (b"0", None)


def test_a_change_between_two_patches_of_a_run_is_found_when_reverting(root: Root) -> None:
    put(root, "a", b"2")
    with pytest.raises(BaseChanged):
        patches.revert(root, [PatchBody("a", b"0", b"1"), PatchBody("a", b"between", b"2")])


def test_a_set_that_cannot_be_written_whole_changes_nothing(root: Root) -> None:
    put(root, "a", b"1")
    put(root, "file", b"f")
    with pytest.raises(CallerError):
        patches.apply(root, [PatchBody("a", b"1", b"2"), PatchBody("file/below", None, b"x")])
    assert get(root, "a") == b"1"
    assert sorted(os.listdir(root.path)) == ["a", "file"]


def test_files_already_changed_are_put_back_when_a_later_one_fails(root: Root) -> None:
    put(root, "a", b"1")
    put(root, "gone", b"here")
    bodies = [
        PatchBody("a", b"1", b"2"),
        PatchBody("gone", b"here", None),
        PatchBody("new", None, b"x"),
        # The second of these makes a directory where the first wants to be a file.
        PatchBody("d", None, b"x"),
        PatchBody("d/below", None, b"x"),
    ]
    with pytest.raises(CallerError):
        patches.apply(root, bodies)
    assert [get(root, name) for name in ("a", "gone", "new")] == [b"1", b"here", None]
    assert sorted(os.listdir(root.path)) == ["a", "d", "gone"]
    assert os.listdir(f"{root.path}/d") == []


def test_a_deleted_file_comes_back_with_its_mode(root: Root) -> None:
    put(root, "run.sh", b"#!/bin/sh\n")
    os.chmod(f"{root.path}/run.sh", 0o750)
    body = patches.propose("run.sh", b"#!/bin/sh\n", None, mode=0o750)
    patches.apply(root, [body])
    patches.apply(root, patches.revert(root, [body]))
    assert os.stat(f"{root.path}/run.sh").st_mode & 0o777 == 0o750


def test_a_patch_that_leads_outside_is_refused(root: Root) -> None:
    with pytest.raises(Refused):
        patches.apply(root, [PatchBody("../escape", None, b"x")])


def test_metadata_says_what_a_patch_artifact_must() -> None:
    body = patches.propose("a", b"", b"x\n")
    made = patches.readable(body)
    assert patches.metadata(body, made.stats) == {
        "target_path": "a",
        "base_revision": body.base_digest,
        "stats": {"additions": 1, "deletions": 0, "hunks": 1},
    }
    assert body.base_digest is not None
    assert body.base_digest.startswith("sha256:")


@given(st.binary(max_size=60))
def test_bytes_that_are_no_patch_are_a_peer_error(data: bytes) -> None:
    try:
        body = patches.decode(data)
    except PeerError:
        return
    assert patches.decode(patches.encode(body)) == body
