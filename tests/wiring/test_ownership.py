"""A home is used only if no other user can write in it, or put another in its place."""

import grp
import os
import pwd
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from batten.contract.errors import CallerError
from batten.wiring.home import batten_home
from batten.wiring.ownership import fault_of

pytestmark = pytest.mark.attack

STRANGER = 4242
is_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with files, in a folder of our own."""
    home = tmp_path / "ours" / "home"
    home.mkdir(parents=True, mode=0o700)
    for name in ("journal.db", "journal.db-wal", "seal.key", "token", "audit.db"):
        (home / name).touch(mode=0o600)
    (home / "keys").mkdir(mode=0o700)
    assert fault_of(str(home)) is None
    return home


def refusal(home: Path) -> str:
    with pytest.raises(CallerError) as refused:
        batten_home({"BATTEN_HOME": str(home)}, "/")
    assert refused.value.code == "config"
    assert str(home) in refused.value.message
    return refused.value.message


@pytest.mark.parametrize("mode", [0o777, 0o702])
def test_a_home_that_others_can_write_is_refused_with_the_fix(home: Path, mode: int) -> None:
    home.chmod(mode)
    assert f"chmod 700 {home}" in refusal(home)


@is_root
def test_a_sticky_home_as_of_a_mounted_disk_is_used_while_all_in_it_is_ours(home: Path) -> None:
    home.chmod(0o1777)
    (home / "journal.db").touch(0o600)
    assert batten_home({"BATTEN_HOME": str(home)}, "/") == str(home)
    os.chown(home / "journal.db", STRANGER, -1)
    assert f"chown -R 0 {home / 'journal.db'}" in refusal(home)


@is_root
@pytest.mark.parametrize("mode", [0o770, 0o720, 0o2770])
def test_a_home_that_a_group_of_others_can_write_is_refused_with_the_fix(
    home: Path, mode: int
) -> None:
    os.chown(home, -1, STRANGER)
    home.chmod(mode)
    assert f"chmod 700 {home}" in refusal(home)


def of_a_private_group(home: Path) -> bool:
    """Whether its group has this user alone: root's, or the one named as the user."""
    group = home.stat().st_gid
    return group == 0 or grp.getgrgid(group).gr_name == pwd.getpwuid(os.geteuid()).pw_name


def test_a_home_made_under_the_umask_of_private_groups_is_used(home: Path) -> None:
    """Systems that give each user a group set the umask 002."""
    if not of_a_private_group(home):
        pytest.skip("the group of new files has other users")
    home.parent.chmod(0o775)
    home.chmod(0o775)
    (home / "kept").touch()
    (home / "kept").chmod(0o664)
    assert batten_home({"BATTEN_HOME": str(home)}, "/") == str(home)


def test_the_fix_works_when_pasted(home: Path) -> None:
    named = home.parent / "my home; it's $HOME"
    home.rename(named)
    named.chmod(0o777)
    fix = refusal(named).rpartition("safe in ")[2].partition(": ")[2]
    subprocess.run(["sh", "-c", fix], check=True, timeout=10)
    assert fault_of(str(named)) is None


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o755])
def test_a_home_that_others_can_only_read_is_used(home: Path, mode: int) -> None:
    home.chmod(mode)
    assert batten_home({"BATTEN_HOME": str(home)}, "/") == str(home)


@pytest.mark.parametrize("name", ["journal.db", "journal.db-wal", "seal.key", "token", "keys"])
@pytest.mark.parametrize("mode", [0o666, 0o622, 0o602])
def test_a_file_of_the_home_that_others_can_write_is_refused(
    home: Path, name: str, mode: int
) -> None:
    (home / name).chmod(mode)
    assert f"chmod go-w {home / name}" in refusal(home)


@is_root
@pytest.mark.parametrize("name", [".", "journal.db", "seal.key", "token", "keys"])
def test_a_home_or_a_file_of_another_user_is_refused(home: Path, name: str) -> None:
    os.chown(home / name, STRANGER, -1)
    assert f"belongs to the user {STRANGER}" in (said := refusal(home))
    assert "chown -R 0" in said


def opened(home: Path) -> None:
    home.parent.chmod(0o777)


def given_away(home: Path) -> None:
    os.chown(home.parent, STRANGER, -1)


@is_root
def test_the_fix_takes_no_folder_above_the_home_from_its_user(home: Path) -> None:
    """As with `sudo`, which may leave the `HOME` of another user."""
    given_away(home)
    said = refusal(home)
    assert "chown" not in said
    assert f"run as the user {STRANGER}, or set BATTEN_HOME" in said


def open_to_a_group(home: Path) -> None:
    os.chown(home.parent, -1, STRANGER)
    home.parent.chmod(0o770)


def replaced_in_a_sticky_folder(home: Path) -> None:
    """A link of a stranger leads to a home that is safe by itself."""
    sticky = home.parent.parent / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    home.parent.rename(sticky / "kept")
    home.parent.symlink_to(sticky / "kept")
    os.chown(sticky / "kept", STRANGER, -1)


@is_root
@pytest.mark.parametrize(
    "change", [opened, given_away, open_to_a_group, replaced_in_a_sticky_folder]
)
def test_a_home_that_others_can_rename_is_refused(
    home: Path, change: Callable[[Path], None]
) -> None:
    change(home)
    refusal(home)


def test_a_sticky_folder_above_is_fine(home: Path) -> None:
    home.parent.chmod(0o1777)
    assert fault_of(str(home)) is None
    assert fault_of(str(home.parent / "new")) is None


def test_a_home_that_is_not_there_yet_is_looked_for_where_it_will_be(home: Path) -> None:
    assert fault_of(str(home.parent / "a" / "b")) is None
    home.parent.chmod(0o777)
    assert fault_of(str(home.parent / "a" / "b")) is not None


def test_links_are_followed(home: Path) -> None:
    top = home.parent.parent
    link = top / "link"
    link.symlink_to("ours/../ours/home")
    assert fault_of(str(link)) is None
    home.chmod(0o777)
    assert f"chmod 700 {home}" in refusal(link)
    home.chmod(0o700)
    elsewhere = top / "open"
    elsewhere.mkdir()
    elsewhere.chmod(0o777)
    (elsewhere / "seal.key").touch(mode=0o600)
    (home / "seal.key").unlink()
    (home / "seal.key").symlink_to(elsewhere / "seal.key")
    assert str(elsewhere) in refusal(home)


def test_a_link_that_leads_in_a_circle_is_left_to_those_who_open_it(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert fault_of(str(tmp_path / "a")) is None
