"""`batten keys`: API keys are made once, listed without their secret, and revoked."""

import fcntl
import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from batten.redact.redactor import Redactor
from tests.agent.stage import Stage

from .invoking import Shell


def test_a_key_is_printed_as_the_last_line_and_stored_as_a_hash(shell: Shell, stage: Stage) -> None:
    said = shell("keys", "create", "ci", "--scope", "admin")
    key = said.out.decode().splitlines()[-1]
    assert said.code == 0
    assert said.err == "batten: the key of ci has the scope admin; it is shown only now\n"
    assert key.startswith("btn_")
    folder = stage.home / "keys"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (path,) = folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key.encode() not in path.read_bytes()
    assert key.rpartition("_")[2].encode() not in path.read_bytes()


def test_keys_are_listed_with_their_use_and_without_their_hash(shell: Shell) -> None:
    shell("keys", "create", "ci", "--scope", "viewer")
    (made,) = shell("keys", "create", "phone", "--json").frames()
    assert made.pop("key").startswith(f"btn_{made['id']}_")
    first, second = shell("keys", "list", "--json").frames()
    assert second == made
    assert {name: first[name] for name in ("name", "scope", "last_used_at", "revoked_at")} == {
        "name": "ci",
        "scope": "viewer",
        "last_used_at": None,
        "revoked_at": None,
    }
    assert made["scope"] == "operator"
    lines = shell("keys", "list").out.decode().splitlines()
    assert [line.split()[0] for line in lines] == ["ci", "phone"]
    assert all(line.endswith("never used  valid") for line in lines)


def test_a_revoked_key_stays_in_the_list_and_frees_its_name(shell: Shell) -> None:
    shell("keys", "create", "ci")
    assert shell("keys", "revoke", "ci").code == 0
    assert "revoked " in shell("keys", "list").out.decode()
    again = shell("keys", "revoke", "ci")
    assert again.code == 1
    assert "the key ci was revoked at" in again.err
    (made,) = shell("keys", "create", "ci", "--json").frames()
    assert shell("keys", "revoke", made["id"]).code == 0
    assert all(one["revoked_at"] for one in shell("keys", "list", "--json").frames())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["create"], 64, "name the key: batten keys create NAME"),
        (["revoke"], 64, "name the key: batten keys revoke NAME"),
        (["rotate"], 64, "name the key: batten keys rotate NAME"),
        (["rotate", "nobody"], 66, "there is no key nobody"),
        (["list", "ci"], 64, "takes no name"),
        (["rotate", "ci", "--scope", "admin"], 64, "`batten keys rotate` takes no --scope"),
        (["create", "ci", "--overlap", "1h"], 64, "`batten keys create` takes no --overlap"),
        (["revoke", "ci", "--expires", "1h"], 64, "`batten keys revoke` takes no --expires"),
        (["list", "--expires", "1h"], 64, "`batten keys list` takes no --expires"),
        (["create", "ci", "--expires", "2020-01-01"], 64, "'2020-01-01' is over already"),
        (["create", "ci", "--expires", "0s"], 64, "'0s' is over already"),
        (["create", "ci", "--expires", "soon"], 64, "or 90d or 12h for so long from now"),
        (["create", "ci", "--expires", "999999999w"], 64, "'999999999w' is too"),
        (["create", "two words"], 1, "'two words' is no name for a key"),
        (["create", "../up"], 1, "'../up' is no name for a key"),
        (["create", "system"], 1, "'system' is the author of what Batten does itself"),
        (["create", "timeout"], 1, "'timeout' is the author of what Batten does itself"),
        (["create", "operator"], 1, "'operator' is the author of what needs no key"),
        (["create", "local"], 1, "'local' is the author of what needs no key"),
        (["create", "x", "--scope", "root"], 64, "root"),
        (["revoke", "nobody"], 66, "there is no key nobody; batten keys list shows them"),
    ],
)
def test_a_wrong_use_says_what_would_be_right(
    shell: Shell, arguments: list[str], code: int, message: str
) -> None:
    said = shell("keys", *arguments)
    assert said.code == code
    assert message in said.err


def test_two_valid_keys_do_not_share_a_name(shell: Shell) -> None:
    shell("keys", "create", "ci")
    said = shell("keys", "create", "ci")
    assert (said.code, said.out) == (1, b"")
    assert said.err == (
        "batten: there is a key ci already; rotate or revoke it, or take another name\n"
    )


def _replaced(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: path.write_bytes(b""),
    "no JSON": lambda path: path.write_bytes(b"{"),
    "no UTF-8": lambda path: path.write_bytes(b"\xff\xfe"),
    "no key": lambda path: path.write_bytes(b'{"id":"x"}'),
    "depth": lambda path: path.write_bytes(b"[" * 50_000),
    "another key": lambda path: path.write_bytes(path.read_bytes().replace(b'"id":"', b'"id":"z')),
    "a time that is none": lambda path: path.write_bytes(
        path.read_bytes().replace(b'"created_at":"2', b'"created_at":"x')
    ),
    "a hash that is none": lambda path: path.write_bytes(
        path.read_bytes().replace(b'"hash":"', '"hash":"é'.encode())
    ),
    "too much": lambda path: path.write_bytes(path.read_bytes() + b" " * (1 << 16)),
    "a folder": lambda path: _replaced(path, Path.mkdir),
    "a pipe": lambda path: _replaced(path, os.mkfifo),
    "a link to nothing": lambda path: _replaced(path, lambda one: one.symlink_to("nowhere")),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_key_file_is_named_and_stands_in_nobodys_way(
    shell: Shell, stage: Stage, damage: Callable[[Path], object]
) -> None:
    shell("keys", "create", "broken")
    (path,) = (stage.home / "keys").iterdir()
    shell("keys", "create", "ci")
    damage(path)
    named = f"batten: {path} is no key file: "
    said = shell("keys", "list", "--json")
    assert (said.code, [key["name"] for key in said.frames()]) == (0, ["ci"])
    assert said.err.startswith(named)
    for arguments in (("create", "other"), ("rotate", "ci"), ("revoke", "ci")):
        said = shell("keys", *arguments)
        assert said.code == 0
        assert said.err.startswith(named)
    said = shell("keys", "revoke", path.stem)
    assert said.code == 78
    assert "its key does not work. Delete it" in said.err


def test_files_of_earlier_versions_are_keys(shell: Shell, stage: Stage) -> None:
    folder = stage.home / "keys"
    folder.mkdir(parents=True, mode=0o700)
    old = (
        '{"id":"abcdefghijkl","name":"ci","scope":"viewer","hash":"%s",'
        '"created_at":"2026-01-02T03:04:05.000006Z"}' % ("0" * 64)
    )
    (folder / "abcdefghijkl.json").write_text(old)
    (key,) = shell("keys", "list", "--json").frames()
    assert (key["name"], key["expires_at"], key["revoked_at"]) == ("ci", None, None)
    assert shell("keys", "list").out.decode().rstrip().endswith("valid")
    assert shell("keys", "rotate", "ci").code == 0
    assert shell("keys", "revoke", "abcdefghijkl").code == 0


def test_a_key_may_expire_and_the_list_says_when(shell: Shell) -> None:
    said = shell("keys", "create", "ci", "--expires", "2999-12-30")
    assert "has the scope operator until 2999-12-31 " in said.err
    (made,) = shell("keys", "create", "soon", "--expires", "90d", "--json").frames()
    lasts = at(made["expires_at"]) - at(made["created_at"])
    assert timedelta(days=89, hours=23) < lasts < timedelta(days=90, hours=1)
    first, second = shell("keys", "list").out.decode().splitlines()
    assert " valid until 2999-12-31 " in first
    assert " valid until " in second


def test_an_expired_key_is_shown_as_such_and_frees_its_name(shell: Shell, stage: Stage) -> None:
    (made,) = shell("keys", "create", "ci", "--expires", "90d", "--json").frames()
    path = stage.home / "keys" / f"{made['id']}.json"
    path.write_text(path.read_text().replace(made["expires_at"], "2026-01-01T00:00:00.000Z"))
    assert "  expired 20" in shell("keys", "list").out.decode()
    assert shell("keys", "create", "ci").code == 0


def at(instant: str) -> datetime:
    return datetime.fromisoformat(instant)


def test_a_rotated_key_has_a_new_secret_and_the_old_one_ends_after_the_overlap(
    shell: Shell,
) -> None:
    (old,) = shell("keys", "create", "ci", "--scope", "viewer", "--json").frames()
    (new,) = shell("keys", "rotate", "ci", "--overlap", "2h", "--json").frames()
    assert new["key"].startswith(f"btn_{new['id']}_")
    assert (new["name"], new["scope"], new["expires_at"]) == ("ci", "viewer", None)
    (ended,) = new["old"]
    assert ended["id"] == old["id"] != new["id"]
    left = at(ended["expires_at"]) - datetime.now(UTC)
    assert timedelta(hours=1) < left < timedelta(hours=3)
    # Another rotation shortens no overlap that is running, and keeps no third key for ever.
    (third,) = shell("keys", "rotate", "ci", "--json").frames()
    ends = {one["id"]: at(one["expires_at"]) - datetime.now(UTC) for one in third["old"]}
    assert set(ends) == {old["id"], new["id"]}
    assert ends[old["id"]] <= left
    assert timedelta(hours=23) < ends[new["id"]] < timedelta(hours=25)


def test_no_overlap_ends_the_old_key_at_once(shell: Shell) -> None:
    shell("keys", "create", "ci")
    said = shell("keys", "rotate", "ci", "--overlap", "0s")
    assert said.code == 0
    assert "the new key of ci has the scope operator; it is shown only now" in said.err
    lines = shell("keys", "list").out.decode().splitlines()
    assert [" expired " in lines[0], lines[1].endswith("  valid")] == [True, True]


def test_a_rotated_key_lasts_as_long_as_the_one_before(shell: Shell) -> None:
    shell("keys", "create", "ci", "--expires", "30d")
    (new,) = shell("keys", "rotate", "ci", "--json").frames()
    lasts = at(new["expires_at"]) - at(new["created_at"])
    assert timedelta(days=29, hours=23) < lasts < timedelta(days=30, hours=1)
    (other,) = shell("keys", "rotate", "ci", "--expires", "2w", "--json").frames()
    assert at(other["expires_at"]) - at(other["created_at"]) < timedelta(days=15)
    # The last year that can be written is an end, too.
    shell("keys", "create", "long", "--expires", "9999-12-30")
    (new,) = shell("keys", "rotate", "long", "--json").frames()
    assert new["expires_at"].startswith("9999-12-31")


def test_a_name_is_revoked_with_its_old_key(shell: Shell) -> None:
    shell("keys", "create", "ci")
    shell("keys", "create", "other")
    shell("keys", "rotate", "ci")
    assert shell("keys", "revoke", "ci").out.decode().count("revoked the key ") == 2
    states = {key["name"]: key["revoked_at"] for key in shell("keys", "list", "--json").frames()}
    assert [states["ci"] is None, states["other"] is None] == [False, True]
    said = shell("keys", "rotate", "ci")
    assert said.code == 1
    assert "the key ci was revoked; make a new one" in said.err


def test_a_lock_that_is_never_given_back_keeps_no_key_from_being_revoked(
    shell: Shell, stage: Stage
) -> None:
    shell("keys", "create", "ci")
    held = os.open(stage.home / "keys", os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert shell("keys", "revoke", "ci").code == 0
    finally:
        os.close(held)


def test_a_key_in_a_text_is_redacted(shell: Shell) -> None:
    key = shell("keys", "create", "ci").out.decode().strip()
    text = Redactor.from_environment(os.environ).text(f"curl -H 'X-Api-Key: {key}' /x")
    assert key not in text
    assert text.startswith("curl")
