"""Which files a command changed: told by names before it, and change times after it."""

import os
import time
from pathlib import Path

import pytest

from batten.workspace.changes import (
    MOST_LISTED,
    QUICK_FILES,
    ChangeRecord,
    Changes,
    FileChange,
    Interval,
    clock_ns,
)
from batten.workspace.root import Root


class Place:
    """A workspace with a record; `since` tells what changed after `begin`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record = ChangeRecord(Root(str(path)))
        self._began = 0

    def begin(self) -> None:
        assert self.record.prepare()
        _next_stamp(self.path)
        self._began = clock_ns()

    def since(self) -> Changes:
        return changes_since(self.record, self._began)

    @property
    def changed(self) -> list[tuple[str, str, int | None]]:
        return [(one.path, one.change, one.size_bytes) for one in self.since().files]


def changes_since(record: ChangeRecord, began_ns: int) -> Changes:
    found = record.changes_of([Interval(began_ns, clock_ns())])
    assert found is not None
    return found[0]


def _next_stamp(folder: Path) -> None:
    """Wait until the file system stamps a file later than those that are there."""
    probe = folder.parent / "probe"
    probe.write_text("")
    first = probe.stat().st_ctime_ns
    while clock_ns() <= first:
        time.sleep(0.001)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    workspace = tmp_path / "workspace"
    (workspace / "src").mkdir(parents=True)
    for name in ("kept.txt", "edited.txt", "gone.txt", "src/a.py", "src/b.py"):
        (workspace / name).write_text("before")
    return Place(workspace)


def test_created_modified_and_deleted_files_are_named_with_their_size(place: Place) -> None:
    place.begin()
    (place.path / "edited.txt").write_text("afterwards")
    (place.path / "new").mkdir()
    (place.path / "new/file.txt").write_text("x")
    (place.path / "gone.txt").unlink()
    assert place.changed == [
        ("edited.txt", "modified", 10),
        ("gone.txt", "deleted", None),
        ("new/file.txt", "created", 1),
    ]


def test_a_second_command_is_told_of_its_own_changes_only(place: Place) -> None:
    place.begin()
    (place.path / "edited.txt").write_text("1")
    assert len(place.changed) == 1
    (place.path / "kept.txt").write_text("somebody else, between the commands")
    (place.path / "src/b.py").unlink()
    place.begin()
    (place.path / "src/a.py").write_text("2")
    # The removal shows in the folder's time, which no change of `a.py` renews.
    assert place.changed == [("src/a.py", "modified", 1)]


def test_a_file_whose_time_was_set_back_is_still_seen(place: Place) -> None:
    place.begin()
    (place.path / "edited.txt").write_text("later")
    os.utime(place.path / "edited.txt", (1, 1))
    assert place.changed == [("edited.txt", "modified", 5)]


def test_a_file_replaced_by_a_rename_is_modified(place: Place) -> None:
    place.begin()
    (place.path / "tmp").write_text("renamed")
    os.rename(place.path / "tmp", place.path / "edited.txt")
    assert place.changed == [("edited.txt", "modified", 7)]


def test_an_edit_of_ours_just_before_a_command_is_not_the_command_s(place: Place) -> None:
    place.begin()
    began = clock_ns()  # the edit has this very stamp, or a later one
    (place.path / "edited.txt").write_text("by a file tool")
    place.record.note_own(str(place.path / "edited.txt"))
    found = changes_since(place.record, began)
    assert found.files == ()


def test_caches_and_packages_are_named_as_folders_and_git_is_left_out(place: Place) -> None:
    (place.path / ".git").mkdir()
    place.begin()
    (place.path / ".git/index").write_text("")
    (place.path / "node_modules/left-pad").mkdir(parents=True)
    (place.path / "node_modules/left-pad/index.js").write_text("")
    (place.path / "target").mkdir()
    (place.path / "target/CACHEDIR.TAG").write_text("")
    assert place.changed == [("node_modules/", "created", None), ("target/", "created", None)]


def test_a_mark_of_a_cache_that_a_command_adds_hides_nothing(place: Place) -> None:
    place.begin()
    (place.path / "src/CACHEDIR.TAG").write_text("")
    (place.path / "src/a.py").write_text("changed")
    assert place.changed == [
        ("src/CACHEDIR.TAG", "created", 0),
        ("src/a.py", "modified", 7),
    ]


def test_links_are_looked_at_and_never_followed(place: Place, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (place.path / "way").symlink_to(outside)
    place.begin()
    (outside / "file").write_text("not in the workspace")
    (place.path / "kept.txt").unlink()
    (place.path / "kept.txt").symlink_to("edited.txt")
    assert [one[:2] for one in place.changed] == [("kept.txt", "modified")]


def test_protected_folders_are_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    record = ChangeRecord(Root(str(tmp_path), protected=(str(tmp_path / "home"),)))
    record.prepare()
    began = clock_ns()
    (tmp_path / "home/journal").write_text("x")
    assert changes_since(record, began) == Changes((), 0)


def test_every_writable_directory_is_looked_at_once(tmp_path: Path) -> None:
    for name in ("workspace/inner", "beside"):
        (tmp_path / name).mkdir(parents=True)
    writable = (str(tmp_path / "workspace/inner"), str(tmp_path / "beside"))
    record = ChangeRecord(Root(str(tmp_path / "workspace"), writable=writable))
    record.prepare()
    began = clock_ns()
    (tmp_path / "workspace/inner/a").write_text("")
    (tmp_path / "beside/b").write_text("")
    found = changes_since(record, began)
    assert found.files == (
        FileChange(str(tmp_path / "beside/b"), "created", 0),
        FileChange("inner/a", "created", 0),
    )


def test_a_long_list_is_cut_and_counted(place: Place) -> None:
    place.begin()
    for number in range(MOST_LISTED + 7):
        (place.path / f"file{number:04}").write_text("")
    found = place.since()
    assert (len(found.files), found.count) == (MOST_LISTED, MOST_LISTED + 7)


def test_a_workspace_with_too_many_files_is_recorded_in_part_and_says_so(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}/file").write_text("")
    record = ChangeRecord(Root(str(tmp_path)), most_files=5)
    record.prepare()
    _next_stamp(tmp_path)
    began = clock_ns()
    found = changes_since(record, began)
    assert (found.files, found.incomplete) == ((), "the workspace has more than 5 files")


def test_a_quick_look_gives_up_on_a_large_workspace_and_learns_nothing(tmp_path: Path) -> None:
    for number in range(QUICK_FILES + 1):
        (tmp_path / f"{number}").write_text("")
    record = ChangeRecord(Root(str(tmp_path)))
    assert not record.prepare(quick=True)
    assert record.prepare()
    _next_stamp(tmp_path)
    began = clock_ns()
    (tmp_path / "0").write_text("new")
    assert record.changes_of([Interval(began, clock_ns())], quick=True) is None
    found = changes_since(record, began)
    assert [one.path for one in found.files] == ["0"]


def test_a_name_that_is_not_text_is_shown(place: Place) -> None:
    place.begin()
    with open(os.fsencode(place.path) + b"/\xff.txt", "wb"):
        pass
    assert place.changed == [("\ufffd.txt", "created", 0)]


def test_one_look_tells_apart_what_several_commands_changed(place: Place) -> None:
    intervals: list[Interval] = []
    place.begin()
    for name in ("edited.txt", "src/a.py"):
        began = clock_ns()
        (place.path / name).write_text("by a command")
        (place.path / f"{name}.new").write_text("")
        _settle_clock(place.path)
        intervals.append(Interval(began, clock_ns()))
        _settle_clock(place.path)
        (place.path / "kept.txt").write_text("between the commands")
        _settle_clock(place.path)
    found = place.record.changes_of(intervals)
    assert found is not None
    assert [[one.path for one in changes.files] for changes in found] == [
        ["edited.txt", "edited.txt.new"],
        ["src/a.py", "src/a.py.new"],
    ]


def test_a_command_that_runs_during_a_look_is_told_of_its_changes_afterwards(
    place: Place,
) -> None:
    place.begin()
    began = clock_ns()
    first = Interval(began, clock_ns())
    _settle_clock(place.path)
    began = clock_ns()
    (place.path / "edited.txt").write_text("by the second")
    (place.path / "new.txt").write_text("")
    (place.path / "gone.txt").unlink()
    assert place.record.changes_of([first]) == [Changes((), 0)]
    found = place.record.changes_of([Interval(began, clock_ns())])
    assert found is not None
    assert [(one.path, one.change) for one in found[0].files] == [
        ("edited.txt", "modified"),
        ("gone.txt", "deleted"),
        ("new.txt", "created"),
    ]


def test_a_command_that_begins_right_after_another_is_told_of_its_own_changes(
    place: Place,
) -> None:
    place.begin()
    first = Interval(clock_ns(), clock_ns())
    began = clock_ns()
    (place.path / "edited.txt").write_text("by the second")
    (place.path / "gone.txt").unlink()
    assert place.record.changes_of([first], next_began=lambda: began) == [Changes((), 0)]
    assert place.record.changes_of([Interval(began, clock_ns())]) != [Changes((), 0)]


def _settle_clock(folder: Path) -> None:
    """Wait longer than a tick of the clock, so that what follows is later for certain."""
    began = time.monotonic()
    while time.monotonic() < began + 0.02:
        _next_stamp(folder)
