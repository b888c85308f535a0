"""Reading pages and whole files, and writing that is whole or not at all."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batten.contract.errors import CallerError, NotFound
from batten.workspace import files
from batten.workspace.files import TextPage, digest
from batten.workspace.root import Root


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(str(tmp_path))


def put(root: Root, name: str, data: bytes) -> None:
    Path(root.path, name).write_bytes(data)


def code_of(caught: pytest.ExceptionInfo[CallerError]) -> str:
    return caught.value.code


def test_a_page_of_lines_says_where_it_ends_and_that_more_remain(root: Root) -> None:
    put(root, "a", b"alpha\nbeta\ngamma\n")
    assert files.read_text(root.resolve("a"), limit=2) == TextPage(
        "alpha\nbeta", 1, 2, 3, True, 17, digest(b"alpha\nbeta\ngamma\n")
    )
    assert files.read_text(root.resolve("a"), offset=3) == TextPage(
        "gamma", 3, 3, 3, False, 17, digest(b"alpha\nbeta\ngamma\n")
    )


def test_crlf_is_read_as_lf_and_a_missing_final_newline_changes_nothing(root: Root) -> None:
    put(root, "a", b"one\r\ntwo\r\nthree")
    assert files.read_text(root.resolve("a")) == TextPage(
        "one\ntwo\nthree", 1, 3, 3, False, 15, digest(b"one\r\ntwo\r\nthree")
    )


def test_an_empty_file_has_no_lines(root: Root) -> None:
    put(root, "a", b"")
    assert files.read_text(root.resolve("a")) == TextPage("", 0, 0, 0, False, 0, digest(b""))


def test_an_offset_below_one_is_one_and_one_past_the_end_is_an_error(root: Root) -> None:
    put(root, "a", b"x\ny\n")
    assert files.read_text(root.resolve("a"), offset=-4).start_line == 1
    with pytest.raises(CallerError) as caught:
        files.read_text(root.resolve("a"), offset=3)
    assert str(caught.value) == "Offset 3 is beyond end of file (2 lines total)"


def test_a_limit_is_clamped_on_both_sides(root: Root) -> None:
    put(root, "a", b"x\n" * 5000)
    assert files.read_text(root.resolve("a"), limit=0).end_line == 1
    assert files.read_text(root.resolve("a"), limit=9999).end_line == 2000
    assert files.read_text(root.resolve("a")).end_line == 400


def test_a_nul_near_the_beginning_means_binary_and_one_further_on_does_not(root: Root) -> None:
    put(root, "bin", b"x" * 2047 + b"\0")
    put(root, "text", b"x" * 2048 + b"\0")
    with pytest.raises(CallerError) as caught:
        files.read_text(root.resolve("bin"))
    assert code_of(caught) == "binary_file"
    assert files.read_text(root.resolve("text")).total_lines == 1


def test_bytes_that_are_not_utf8_are_shown_as_replacements(root: Root) -> None:
    put(root, "a", b"caf\xe9\n")
    assert files.read_text(root.resolve("a")).content == "caf\ufffd"


def test_a_file_beyond_the_cap_is_refused_unless_the_cap_is_lifted(root: Root) -> None:
    put(root, "a", b"line\n" * 600_000)
    with pytest.raises(CallerError) as caught:
        files.read_text(root.resolve("a"))
    assert code_of(caught) == "file_too_large"
    page = files.read_text(root.resolve("a"), offset=599_999, max_bytes=None)
    whole = digest(b"line\n" * 600_000)
    assert page == TextPage("line\nline", 599_999, 600_000, 600_000, False, 3_000_000, whole)


def test_a_page_is_cut_at_whole_lines_and_a_single_long_line_within(root: Root) -> None:
    put(root, "lines", b"123456789\n" * 10)
    put(root, "long", b"x" * 1000 + b"\nrest\n")
    page = files.read_text(root.resolve("lines"), max_page_bytes=35)
    assert (page.end_line, page.truncated, page.content.count("\n")) == (3, True, 2)
    page = files.read_text(root.resolve("long"), max_page_bytes=100)
    assert (page.content, page.end_line, page.truncated) == ("x" * 100, 1, True)


@given(data=st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b"\r"])).map(b"".join))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_pages_laid_end_to_end_are_the_file(root: Root, data: bytes) -> None:
    put(root, "a", data)
    place = root.resolve("a")
    lines: list[str] = []
    page = files.read_text(place, limit=2)
    lines += page.content.split("\n") if page.total_lines else []
    while page.truncated:
        page = files.read_text(place, offset=page.end_line + 1, limit=2)
        lines += page.content.split("\n")
    assert len(lines) == page.total_lines
    joined = "".join(line + "\n" for line in lines).encode()
    normal = data.replace(b"\r\n", b"\n")
    assert joined == (normal if normal.endswith(b"\n") or not normal else normal + b"\n")


def test_what_is_not_a_regular_file_is_an_error_and_never_waited_for(root: Root) -> None:
    os.mkdir(f"{root.path}/dir")
    os.mkfifo(f"{root.path}/pipe")
    for name, code in (("dir", "is_directory"), (".", "is_directory"), ("pipe", "not_a_file")):
        with pytest.raises(CallerError) as caught:
            files.read(root.resolve(name))
        assert code_of(caught) == code
    for name in ("missing", "missing/inner"):
        with pytest.raises(NotFound, match=f"File not found: {name}"):
            files.read(root.resolve(name))


def test_reading_a_whole_file_is_capped(root: Root) -> None:
    put(root, "a", b"12345")
    assert files.read(root.resolve("a"), max_bytes=5).data == b"12345"
    with pytest.raises(CallerError) as caught:
        files.read(root.resolve("a"), max_bytes=4)
    assert code_of(caught) == "file_too_large"


def test_a_write_makes_the_directories_it_needs_and_leaves_nothing_else(root: Root) -> None:
    files.write(root.resolve("deep/er/file.txt"), b"content")
    assert Path(root.path, "deep/er/file.txt").read_bytes() == b"content"
    assert os.listdir(f"{root.path}/deep/er") == ["file.txt"]


def test_a_write_keeps_the_mode_of_the_file_it_replaces(root: Root) -> None:
    put(root, "run.sh", b"old")
    os.chmod(f"{root.path}/run.sh", 0o754)
    files.write(root.resolve("run.sh"), b"new", mode=0o600)
    assert stat.S_IMODE(os.stat(f"{root.path}/run.sh").st_mode) == 0o754
    assert files.read(root.resolve("run.sh")) == files.Content(b"new", 0o754)


def test_a_new_file_gets_the_mode_asked_for_or_the_umask_s(root: Root) -> None:
    files.write(root.resolve("secret"), b"", mode=0o600)
    files.write(root.resolve("plain"), b"")
    umask = os.umask(0)
    os.umask(umask)
    assert files.read(root.resolve("secret")).mode == 0o600
    assert files.read(root.resolve("plain")).mode == 0o666 & ~umask


def test_a_write_through_a_link_changes_the_file_and_keeps_the_link(root: Root) -> None:
    put(root, "target", b"old")
    os.symlink("target", f"{root.path}/link")
    files.write(root.resolve("link"), b"new")
    assert os.readlink(f"{root.path}/link") == "target"
    assert Path(root.path, "target").read_bytes() == b"new"


def test_writing_over_what_is_no_file_or_below_one_fails_and_changes_nothing(root: Root) -> None:
    os.mkdir(f"{root.path}/dir")
    os.mkfifo(f"{root.path}/pipe")
    put(root, "file", b"kept")
    for name in ("dir", "file/inner", "pipe"):
        with pytest.raises(CallerError):
            files.write(root.resolve(name), b"x")
    assert sorted(os.listdir(root.path)) == ["dir", "file", "pipe"]
    assert Path(root.path, "file").read_bytes() == b"kept"


def test_staged_content_is_invisible_until_it_is_committed(root: Root) -> None:
    put(root, "a", b"old")
    staged = files.Staged(root.resolve("a"), b"new", None)
    assert Path(root.path, "a").read_bytes() == b"old"
    staged.commit()
    assert Path(root.path, "a").read_bytes() == b"new"
    files.Staged(root.resolve("a"), b"newer", None).discard()
    assert os.listdir(root.path) == ["a"]


def test_a_digest_is_sha256_spelled_out() -> None:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert files.digest(b"") == f"sha256:{empty}"


def test_removing_removes_once(root: Root) -> None:
    put(root, "a", b"")
    files.remove(root.resolve("a"))
    with pytest.raises(NotFound):
        files.remove(root.resolve("a"))
