"""Unified diffs, read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract.errors import CallerError
from batten.workspace.diff import unified
from batten.workspace.unified import BadDiff, DiffDiffers, apply_unified

contents = (
    st.none()
    | st.lists(
        st.sampled_from(
            [b"a\n", b"b\n", b"c\r\n", b"\n", b"-\n", b"+x\n", b"\\ no\n", b"@@ -1 +1 @@\n"]
        ),
        max_size=30,
    ).map(b"".join)
    | st.just(b"no end")
    | st.just(b"a\nb")
)


@given(contents, contents)
def test_a_diff_that_we_made_gives_the_new_content(
    before: bytes | None, after: bytes | None
) -> None:
    made = unified("a.txt", before, after).body
    if b"\n@@" not in made:  # nothing changed, or only whether an empty file exists
        return
    assert apply_unified(before, made) == after


@given(contents, contents, contents)
def test_a_diff_never_changes_a_file_that_it_was_not_made_for(
    before: bytes | None, after: bytes | None, other: bytes | None
) -> None:
    try:
        found = apply_unified(other, unified("a.txt", before, after).body)
    except CallerError:
        return
    # It fits only where each line that it shows is in its place.
    assert (other is None) == (before is None)
    assert found is None or other != found


def test_a_file_that_differs_is_refused_with_the_line() -> None:
    diff = b"--- a/a\n+++ b/a\n@@ -2,1 +2,1 @@\n-two\n+2\n"
    assert apply_unified(b"one\ntwo\n", diff) == b"one\n2\n"
    with pytest.raises(DiffDiffers, match="line 2"):
        apply_unified(b"one\nzwei\n", diff)
    with pytest.raises(DiffDiffers, match="does not exist"):
        apply_unified(None, diff)
    with pytest.raises(DiffDiffers, match="exists already"):
        apply_unified(b"", b"--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+x\n")


HUNK = b"--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+x\n"


@pytest.mark.parametrize(
    "diff",
    [
        b"new file mode 100755\n" + HUNK,
        b"new file mode 120000\n" + HUNK,
        b"old mode 100644\nnew mode 100755\n" + HUNK,
        b"similarity index 90%\nrename from b\nrename to a\n" + HUNK,
        b"copy from b\ncopy to a\n",
        b"new file mode 100644\nGIT binary patch\nliteral 3\nKcmZQzU|?W?00031\n",
        b"Binary files a/a and b/a differ\n",
    ],
)
def test_a_diff_that_changes_more_than_text_is_refused_instead_of_being_half_applied(
    diff: bytes,
) -> None:
    with pytest.raises(BadDiff, match="more than the text"):
        apply_unified(None, b"diff --git a/a b/a\n" + diff)
    assert apply_unified(None, b"diff --git a/a b/a\nnew file mode 100644\n" + HUNK) == b"x\n"


@pytest.mark.parametrize(
    "diff",
    [
        b"",
        b"change two to 2",
        b"@@ -1 +1 @@\n-a\n+b\n",
        b"--- a/a\n+++ b/a\n",
        b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n",
        b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n",
        b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n?a\n+b\n",
        b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+b\nand more\n",
        b"--- a/a\n+++ b/a\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-a\n+b\n",
    ],
)
def test_what_is_no_diff_of_one_file_is_refused(diff: bytes) -> None:
    with pytest.raises(BadDiff):
        apply_unified(b"a\n", diff)


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_any_bytes_are_a_diff_or_an_error_but_never_a_crash(diff: bytes, before: bytes) -> None:
    for text in (diff, b"--- a\n+++ b\n@@ -1 +1 @@\n" + diff):
        try:
            apply_unified(before, text)
        except CallerError:
            continue
