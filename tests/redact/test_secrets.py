"""Which values of an environment are secrets."""

import base64
from urllib.parse import quote

import pytest

from batten.redact.names import is_secret_name
from batten.redact.redactor import Redactor
from batten.redact.secrets import known_values


@pytest.mark.parametrize(
    "name",
    [
        "ANTHROPIC_API_KEY",
        "GITHUB_TOKEN",
        "db_password",
        "MYSQL_PWD",
        "DB_PASS",
        "AWS_SECRET_ACCESS_KEY",
        "clientSecret",
        "X-Api-Key",
        "Authorization",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "NPM_AUTH",
        "OPENAI_KEY",
        "GITHUB_PAT",
        "ENCRYPTION_KEY",
        "DB_PW",
        "SENTRY_DSN",
        "AZURE_STORAGE_CONNECTION_STRING",
        "DATABASE_URL",
        "KEY",
        "pwd",
    ],
)
def test_names_that_say_they_hold_a_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "HOME",
        "AUTHOR",
        "COMPASS",
        "MAX_TOKENS",
        "max_tokens",
        "TOKENIZERS_PARALLELISM",
        "KEYBOARD",
        "MONKEY",
        "XKB_KEYMAP",
        "SSH_PUBLIC_KEY",
        "primary_key",
        "cacheKey",
        "key",
        "PATTERN",
        "PWDX",
        "DISPATCH",
        "PWD",
        "SSH_AUTH_SOCK",
    ],
)
def test_names_that_do_not(name: str) -> None:
    assert not is_secret_name(name)


def test_values_are_taken_by_name_and_from_addresses() -> None:
    environ = {
        "OPENAI_API_KEY": "abc-def-ghi",
        "DATABASE_URL": "postgres://ann:s3same-open@db:5432/app",
        "PATH": "/usr/bin:/bin",
        "HOME": "/home/ann",
    }
    values = known_values(environ)
    assert "abc-def-ghi" in values
    assert "s3same-open" in values
    assert not any("/home" in value or "/usr" in value for value in values)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "true",
        "12345",
        "/run/secrets/token",
        "/tmp/key.json",
        "https://auth.example.org/token",
        "none",
        "aaaaaaaa",
        "abc",
        "keyring",
        "~/.config/gcloud/creds.json",
    ],
)
def test_values_that_are_plainly_no_secrets_are_skipped(value: str) -> None:
    assert known_values({"SOME_TOKEN": value}) == ()


def test_a_value_is_found_again_in_its_usual_encodings() -> None:
    secret = 'p&ss "w/rd"+1é'
    redactor = Redactor.from_environment({"DB_PASSWORD": secret})
    for spelling in (
        secret,
        quote(secret, safe=""),
        base64.b64encode(secret.encode()).decode(),
        base64.b64encode(secret.encode() + b" and more").decode(),
        'p&ss \\"w/rd\\"+1é',
    ):
        assert "<redacted>" in redactor.text(f"< {spelling} >")
        assert spelling not in redactor.text(f"< {spelling} >")


def test_the_lines_of_a_value_of_many_lines_are_found_one_by_one() -> None:
    key = "-----BEGIN KEY-----\nq83hfQ8h2lJqPz71aYc0RkWm\n-----END KEY-----"
    redactor = Redactor.from_environment({"DEPLOY_PRIVATE_KEY": key})
    assert redactor.text("+q83hfQ8h2lJqPz71aYc0RkWm") == "+<redacted>"


def test_named_values_are_added_whatever_they_look_like() -> None:
    assert "/not/a/path" in known_values({}, ["/not/a/path"])


def test_longer_values_come_first() -> None:
    lengths = list(map(len, known_values({"A_TOKEN": "abcdef1", "B_TOKEN": "abcdef1-and-more"})))
    assert lengths == sorted(lengths, reverse=True)


def test_a_value_is_found_in_an_address_that_spells_its_signs_in_lower_case() -> None:
    redactor = Redactor.from_environment({"MY_TOKEN": "Qw8/eR5+tY2=uI"})
    assert redactor.text("?q=Qw8%2feR5%2btY2%3duI&") == "?q=<redacted>&"
