"""`batten keys`: API keys are made once, listed without their secret, and revoked."""

import os
import stat

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
        (["list", "ci"], 64, "takes no name"),
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
    assert said.err == ("batten: there is a key ci already; revoke it or take another name\n")


def test_a_damaged_key_file_is_named(shell: Shell, stage: Stage) -> None:
    shell("keys", "create", "ci")
    (path,) = (stage.home / "keys").iterdir()
    path.write_bytes(b"{")
    said = shell("keys", "list")
    assert said.code == 78
    assert f"{path} is no key file" in said.err


def test_a_key_in_a_text_is_redacted(shell: Shell) -> None:
    key = shell("keys", "create", "ci").out.decode().strip()
    text = Redactor.from_environment(os.environ).text(f"curl -H 'X-Api-Key: {key}' /x")
    assert key not in text
    assert text.startswith("curl")
