"""Watching real directories. Each wait ends with the change that was made."""

import asyncio
import os
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest

from batten.contract.errors import NotFound, ProviderError
from batten.workspace.moves import Moves
from batten.workspace.root import ResolvedPath, Root
from batten.workspace.watch import Change, FileWatcher, wanted_by, watching


@pytest.fixture
def top(tmp_path: Path) -> ResolvedPath:
    (tmp_path / "work" / "src").mkdir(parents=True)
    return Root(str(tmp_path / "work")).resolve(".")


async def until(watch: FileWatcher, path: str) -> list[Change]:
    """All changes up to the first one of `path`."""
    seen: list[Change] = []
    async with asyncio.timeout(10):
        while not any(change.path == path for change in seen):
            seen += await anext(watch)
    return seen


async def test_created_modified_and_deleted_files_are_told_apart(top: ResolvedPath) -> None:
    file = Path(top.path, "src/a.txt")
    async with watching(top, debounce_ms=10) as watch:
        file.write_text("1")
        assert await until(watch, "src/a.txt") == [Change("create", "src/a.txt", False)]
        file.write_text("2")
        assert await until(watch, "src/a.txt") == [Change("modify", "src/a.txt", False)]
        file.unlink()
        assert await until(watch, "src/a.txt") == [Change("delete", "src/a.txt", False)]


async def test_a_file_put_in_the_place_of_another_is_a_change_of_it(top: ResolvedPath) -> None:
    file, again = Path(top.path, "src/a.txt"), Path(top.path, "src/deep/b.txt")
    file.write_text("1")
    async with watching(top, debounce_ms=10) as watch:
        staged = Path(top.path, "src/a.tmp")
        staged.write_text("2")
        staged.rename(file)
        assert Change("modify", "src/a.txt", False) in await until(watch, "src/a.txt")
        again.parent.mkdir()
        again.write_text("1")
        assert Change("create", "src/deep/b.txt", False) in await until(watch, "src/deep/b.txt")
        shutil.rmtree(again.parent)
        await until(watch, "src/deep")
        again.parent.mkdir()
        again.write_text("1")
        assert Change("create", "src/deep/b.txt", False) in await until(watch, "src/deep/b.txt")


async def test_a_moved_file_is_gone_from_one_path_and_renamed_to_the_other(
    top: ResolvedPath,
) -> None:
    source, target = Path(top.path, "src/a.txt"), Path(top.path, "b.txt")
    source.write_text("1")
    os.utime(source, (1, 1))
    async with watching(top, debounce_ms=10) as watch:
        source.rename(target)
        seen = await until(watch, "b.txt")
        if len(seen) == 1:
            seen += await until(watch, "src/a.txt")
        assert sorted(seen, key=lambda change: change.path) == [
            Change("rename", "b.txt", False),
            Change("delete", "src/a.txt", False),
        ]
        Path(top.path, "c.txt").touch()  # perhaps with the number that another file had
        assert await until(watch, "c.txt") == [Change("create", "c.txt", False)]


async def test_what_is_in_a_moved_directory_is_moved_with_it(top: ResolvedPath) -> None:
    inner = Path(top.path, "src/inner")
    inner.write_text("1")
    os.utime(inner, (1, 1))
    os.utime(inner.parent, (1, 1))
    async with watching(top, debounce_ms=10) as watch:
        inner.parent.rename(Path(top.path, "lib"))
        seen = await until(watch, "lib/inner")
    assert Change("rename", "lib", True) in seen
    assert Change("rename", "lib/inner", False) in seen


def test_a_number_that_is_used_again_does_not_make_a_new_file_a_moved_one(tmp_path: Path) -> None:
    old, new, linked = tmp_path / "old", tmp_path / "new", tmp_path / "linked"
    old.touch()
    moves = Moves()
    moves.learn(str(tmp_path))
    os.link(old, linked)
    assert not moves.is_moved(str(linked))  # it still is where it was
    old.rename(new)
    linked.unlink()
    future = time.time_ns() + 60_000_000_000
    os.utime(new, ns=(future, future))  # as one that was made since is younger
    assert not moves.is_moved(str(new))
    os.utime(new, (1, 1))
    new.rename(old)
    assert moves.is_moved(str(old))


async def test_a_burst_of_writes_to_one_file_is_one_change(top: ResolvedPath) -> None:
    async with watching(top, debounce_ms=50) as watch:
        for number in range(20):
            Path(top.path, "a").write_text(str(number))
        assert await until(watch, "a") == [Change("create", "a", False)]


async def test_new_directories_are_watched_with_what_was_already_in_them(top: ResolvedPath) -> None:
    async with watching(top, debounce_ms=10) as watch:
        os.makedirs(f"{top.path}/new/deep")
        Path(top.path, "new/deep/early").touch()
        seen = await until(watch, "new/deep/early")
        assert Change("create", "new", True) in seen
        Path(top.path, "new/deep/late").touch()
        assert Change("create", "new/deep/late", False) in await until(watch, "new/deep/late")


async def test_a_directory_made_again_is_watched_again(top: ResolvedPath) -> None:
    async with watching(top, debounce_ms=10) as watch:
        os.rmdir(f"{top.path}/src")
        await until(watch, "src")
        os.mkdir(f"{top.path}/src")
        await until(watch, "src")
        Path(top.path, "src/again").touch()
        assert Change("create", "src/again", False) in await until(watch, "src/again")


async def test_names_that_are_not_utf8_are_left_out_and_all_others_reported(
    top: ResolvedPath,
) -> None:
    base = os.fsencode(top.path)
    os.mkdir(base + b"/d\xff")
    async with watching(top, debounce_ms=10) as watch:
        for number in range(3):  # each ends the watch below this one
            Path(base.decode(), f"before{number}").touch()
            os.close(os.open(base + b"/f\xfe%d" % number, os.O_CREAT))
            Path(base.decode(), f"after{number}").touch()
            await until(watch, f"after{number}")
        os.makedirs(base + b"/new/in\xff")
        os.close(os.open(base + b"/new/f\xfe", os.O_CREAT))
        Path(top.path, "new/late").touch()
        seen = await until(watch, "new/late")
        Path(top.path, "last").touch()
        seen += await until(watch, "last")
    assert all(change.path.isascii() for change in seen)


async def test_linked_directories_are_not_descended_into(top: ResolvedPath, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    os.symlink("../outside", f"{top.path}/link")
    async with watching(top, debounce_ms=10) as watch:
        os.symlink("../outside", f"{top.path}/later")
        assert await until(watch, "later") == [Change("create", "later", False)]
        (tmp_path / "outside" / "secret").touch()
        Path(top.path, "marker").touch()
        assert await until(watch, "marker") == [Change("create", "marker", False)]


async def test_excluded_paths_are_silent(top: ResolvedPath) -> None:
    async with watching(top, debounce_ms=10, include=("**/*.py",), exclude=("src/no*",)) as watch:
        os.mkdir(f"{top.path}/node_modules")
        for path in ("node_modules/a.py", "src/not.py", "src/a.txt", "x.log", "src/yes.py"):
            Path(top.path, path).touch()
        assert await until(watch, "src/yes.py") == [Change("create", "src/yes.py", False)]


def test_exclusions_win_over_inclusions_and_the_built_in_ones_over_all() -> None:
    wanted = wanted_by(("**",), ("*.tmp",))
    paths = ["a", "deep/a.tmp", "a.tmp", "x/.git/config", "dist/a", "y.log", ".env", "distance"]
    assert [path for path in paths if wanted(path)] == ["a", "deep/a.tmp", ".env", "distance"]


async def test_a_missing_directory_is_not_found_before_anything_starts(top: ResolvedPath) -> None:
    threads = threading.active_count()
    with pytest.raises(NotFound):
        async with watching(ResolvedPath(top.path, ("missing",), "missing")):
            pass
    assert threading.active_count() == threads


async def test_a_directory_that_goes_away_is_said_after_its_last_changes(top: ResolvedPath) -> None:
    Path(top.path, "src/a.txt").touch()
    async with watching(top, debounce_ms=10) as watch:
        shutil.rmtree(top.path)
        with pytest.raises(NotFound, match="Watched directory is gone"):
            await until(watch, "never")
        with pytest.raises(NotFound, match="Watched directory is gone"):
            await anext(watch)  # however often it is asked


async def test_leaving_and_cancelling_both_end_the_thread(top: ResolvedPath) -> None:
    async with watching(top, debounce_ms=10):
        assert any(thread.name == "batten-watch" for thread in threading.enumerate())
    entered = asyncio.Event()

    async def wait_for_ever() -> None:
        async with watching(top, debounce_ms=10) as watch:
            entered.set()
            await anext(watch)

    task = asyncio.ensure_future(wait_for_ever())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not any(thread.name == "batten-watch" for thread in threading.enumerate())


async def test_a_watch_whose_library_or_thread_is_missing_says_so(
    top: ResolvedPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def begin() -> None:
        async with asyncio.timeout(10), watching(top):
            pass

    with monkeypatch.context() as missing:
        missing.setitem(sys.modules, "watchfiles._rust_notify", None)
        with pytest.raises(ProviderError, match="_rust_notify"):
            await begin()
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", no_room)
        with pytest.raises(ProviderError, match="can't start new thread"):
            await begin()
