"""A root gives out places inside it and nothing else."""

import ctypes
import os
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batten.contract.errors import BattenError, CallerError, NotFound, Refused
from batten.workspace import files
from batten.workspace.root import ResolvedPath, Root, parent_of
from tests.examples import examples


@pytest.fixture
def root(tmp_path: Path) -> Root:
    (tmp_path / "work" / "sub").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("no")
    return Root(str(tmp_path / "work"))


def refusal(root: Root, path: str) -> tuple[str, str]:
    with pytest.raises(Refused) as caught:
        root.resolve(path)
    return caught.value.code, caught.value.message


def test_relative_absolute_and_dotted_paths_inside_resolve_to_the_same_place(root: Root) -> None:
    wanted = ResolvedPath(root.path, ("sub", "a.txt"), "sub/a.txt")
    spellings = ["sub/a.txt", "./sub//a.txt", "sub/../sub/a.txt", f"{root.path}/sub/a.txt"]
    assert [root.resolve(each) for each in spellings] == [wanted] * len(spellings)


def test_the_root_itself_is_inside_and_shown_as_a_dot(root: Root) -> None:
    assert root.resolve(".") == ResolvedPath(root.path, (), ".")
    assert root.resolve(root.path) == ResolvedPath(root.path, (), ".")


@pytest.mark.parametrize("path", ["..", "../outside/secret", "sub/../../outside", "/etc/passwd"])
def test_a_path_that_leads_outside_is_refused_by_name(root: Root, path: str) -> None:
    assert refusal(root, path) == (
        "workspace_violation",
        f"Path is outside workspace root: {path}",
    )


def test_a_sibling_whose_name_begins_like_the_root_is_outside(root: Root) -> None:
    os.mkdir(root.path + "-other")
    refusal(root, root.path + "-other")


def test_names_that_merely_begin_with_dots_are_allowed(root: Root) -> None:
    assert root.resolve("..data/...x").parts == ("..data", "...x")


def test_a_tilde_is_an_ordinary_name(root: Root) -> None:
    assert root.resolve("~/x").parts == ("~", "x")


def test_a_link_inside_is_followed_and_a_link_outside_is_refused(root: Root) -> None:
    os.symlink("sub", f"{root.path}/inner")
    os.symlink("../outside", f"{root.path}/outer")
    assert root.resolve("inner/a").parts == ("sub", "a")
    refusal(root, "outer/secret")


def test_a_link_outside_is_refused_even_where_the_last_names_do_not_exist_yet(root: Root) -> None:
    os.symlink("../outside", f"{root.path}/outer")
    os.symlink("../outside/not-yet", f"{root.path}/dangling")
    refusal(root, "outer/new/file.txt")
    refusal(root, "dangling")


def test_a_loop_of_links_opens_nothing(root: Root) -> None:
    os.symlink("loop", f"{root.path}/loop")
    with pytest.raises(Refused):
        files.read(root.resolve("loop"))


def test_a_root_reached_through_a_link_accepts_both_spellings(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    root = Root(str(tmp_path / "link"))
    for base in ("real", "link"):
        assert root.resolve(str(tmp_path / base / "x")).parts == ("x",)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "empty"),
        ("a\0b", "NUL"),
        ("x" * 256, "too long"),
        ("x/" * 3000, "too long"),
        ("\ud800", "Unicode"),
    ],
)
def test_a_path_no_file_system_can_hold_is_the_callers_mistake(
    root: Root, path: str, reason: str
) -> None:
    with pytest.raises(CallerError, match=reason) as caught:
        root.resolve(path)
    assert caught.value.code == "invalid_path"


def test_a_root_that_is_no_directory_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Root(str(tmp_path / "missing"))


def test_other_roots_are_readable_and_writable(tmp_path: Path) -> None:
    for name in ("work", "both", "look"):
        (tmp_path / name).mkdir()
    look, both = str(tmp_path / "look"), str(tmp_path / "both")
    root = Root(str(tmp_path / "work"), writable=(both,))
    assert root.resolve(f"{both}/x").shown == f"{both}/x"
    assert root.resolve(f"{both}/x", "write").shown == f"{both}/x"
    with pytest.raises(Refused, match="outside"):
        root.resolve(f"{look}/x")


def test_protected_paths_inside_are_read_and_never_written(tmp_path: Path) -> None:
    state = tmp_path / "work" / "state"
    state.mkdir(parents=True)
    (tmp_path / "work" / "way").symlink_to(state)
    root = Root(str(tmp_path / "work"), protected=(str(state),))
    assert root.resolve("state/key").shown == "state/key"
    assert root.resolve("states", "write").shown == "states"
    for path in ("state", "state/key", "way/key", "sub/../state/new/deep"):
        with pytest.raises(Refused, match="read but not written"):
            root.resolve(path, "write")


def test_a_root_at_or_below_a_protected_path_stays_writable(root: Root, tmp_path: Path) -> None:
    for protected in (root.path, str(tmp_path)):
        inside = Root(root.path, protected=(protected,))
        assert inside.resolve("x", "write").shown == "x"


names = st.sampled_from(["..", ".", "", "sub", "outer", "inner", "x", "~", "..x"]) | st.text(
    max_size=5
)


@given(path=st.lists(names, max_size=8).map("/".join) | st.text(max_size=40))
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=examples(300),
)
def test_no_path_whatsoever_resolves_outside(root: Root, path: str) -> None:
    for name, target in (("inner", "sub"), ("outer", "../outside"), ("sub/up", "../..")):
        if not os.path.lexists(f"{root.path}/{name}"):
            os.symlink(target, f"{root.path}/{name}")
    try:
        place = root.resolve(path)
    except BattenError:
        return
    real = os.path.realpath(place.path)
    assert real == place.path
    assert real == root.path or real.startswith(root.path + "/")


def test_a_link_swapped_in_after_the_check_leads_nowhere(root: Root) -> None:
    Path(f"{root.path}/sub/secret").write_text("mine")
    place = root.resolve("sub/secret")
    os.rename(f"{root.path}/sub", f"{root.path}/moved")
    os.symlink("../outside", f"{root.path}/sub")
    with pytest.raises(Refused):
        files.read(place)
    with pytest.raises(Refused):
        files.write(place, b"overwritten")
    with pytest.raises(Refused):
        files.remove(place)
    assert Path(f"{root.path}/../outside/secret").read_text() == "no"


def test_the_last_name_swapped_for_a_link_is_not_followed(root: Root) -> None:
    Path(f"{root.path}/a").write_text("mine")
    place = root.resolve("a")
    os.unlink(f"{root.path}/a")
    os.symlink("../outside/secret", f"{root.path}/a")
    with pytest.raises(Refused):
        files.read(place)
    with pytest.raises(Refused):
        files.write(place, b"overwritten")
    assert Path(f"{root.path}/../outside/secret").read_text() == "no"


def test_somebody_swapping_links_all_the_time_never_gets_a_byte_out_or_in(root: Root) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        pytest.skip("this system cannot exchange two names at once")
    Path(f"{root.path}/sub/secret").write_text("mine")
    os.symlink("../outside", f"{root.path}/evil")
    directory, link = f"{root.path}/sub".encode(), f"{root.path}/evil".encode()
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            libc.renameat2(-100, directory, -100, link, 2)

    thread = threading.Thread(target=swap)
    thread.start()
    seen: set[bytes] = set()
    stopped = 0
    try:
        while stopped < 50 or not seen:
            try:
                place = root.resolve("sub/secret", "write")
                seen.add(files.read(place).data)
                files.write(place, b"mine")
            except BattenError:  # refused, or gone by the time it is looked at again
                stopped += 1
    finally:
        done.set()
        thread.join()
    assert seen == {b"mine"}
    assert (Path(root.path).parent / "outside" / "secret").read_text() == "no"
    assert os.listdir(Path(root.path).parent / "outside") == ["secret"]


def test_a_parent_is_made_only_when_asked_for(root: Root) -> None:
    place = root.resolve("new/deep/file")
    with pytest.raises(FileNotFoundError), parent_of(place):
        pass
    with parent_of(place, create=True) as directory:
        assert os.fstat(directory).st_ino == os.stat(f"{root.path}/new/deep").st_ino
