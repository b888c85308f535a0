"""Which values of an environment are secrets."""

import base64
from urllib.parse import quote

import pytest

from batten.redact.configured import configured_values
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
        "API_TOKENS",
        "githubTokens",
        "MY_JWT",
        "API_BEARER",
        "SIGNING_SEED",
        "walletSeed",
        "ENCRYPTION_SALT",
        "AUTH_SALT",
        "SSH_KEYS",
        "RECOVERY_CODES",
        "MFA_TOTP",
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
        "input_tokens",
        "API_MAX_TOKENS",
        "JWT_ISSUER",
        "RANDOM_SEED",
        "seed",
        "BASALT",
        "env_keys",
        "status_code",
        "session_id",
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


@pytest.mark.parametrize(
    "value",
    [
        "/k9Xq2Lm8/Zp4Rt",
        "/correct-horse-battery",
        "/my/own/phrase",
        "/8f14e45fceea167a5a36dedd4bea2543",
        "./k9Xq2Lm8Zp4Rt",
        "~Zq8kLm3xP",
        "$Zq8kLm3xP",
        "=Zq8kLm3xP",
        "-Zq8kLm3xP",
        "/home/k9Xq2Lm8Zp4Rt",
    ],
)
def test_a_value_is_a_secret_whatever_it_begins_with(value: str) -> None:
    assert value in known_values({"SOME_TOKEN": value})


def test_literals_in_the_entries_of_servers_and_hooks_are_known() -> None:
    entries = [
        {"command": "server", "env": {"GITHUB_TOKEN": "literal-one-1", "MODE": "quick-and-dirty"}},
        {"command": "server", "args": ["--api-key", "literal-two-2", "--port", "8080"]},
        {"command": "server --password=literal-three-3 --verbose"},
        {"url": "https://ann:literal-four-4@example.org/mcp"},
        {"url": "https://example.org/mcp?token=literal-five-5&page=2"},
        {"url": "https://example.org/hooks/aB3dE6gH9jK2mN5pQ8sT1vW4"},
        {"url": "https://example.org", "headers": {"Authorization": "Bearer literal-six-6"}},
        {"url": "https://example.org", "headers": {"X-Mine": "aB3dE6gH9jK2mN5p", "Accept": "*/*"}},
        {"url": "https://example.org", "headers": {"Cookie": "sid=literal-seven-7; theme=dark"}},
        {"command": "server", "env": {"API_TOKEN": "${API_TOKEN}"}, "args": ["https://a.org/mcp"]},
        {"command": "curl", "args": ["-u", "ann:literal-8", "https://example.org"]},
        {"command": "server", "args": ["--token", "LITERAL9", "--auth-token=LITERAL10"]},
        {"command": "API_KEY='LITERAL11' server --secret LITERAL12 --token-file /run/a"},
        "no entry at all",
    ]
    values = configured_values(entries)
    assert {"LITERAL9", "LITERAL10", "LITERAL11", "LITERAL12"} <= values
    assert {value for value in values if value.startswith("literal")} == {
        *("literal-one-1", "literal-two-2", "literal-three-3", "literal-four-4"),
        *("literal-five-5", "literal-six-6", "literal-seven-7", "literal-8"),
    }
    assert {"aB3dE6gH9jK2mN5pQ8sT1vW4", "aB3dE6gH9jK2mN5p"} <= values
    assert not values & {"quick-and-dirty", "${API_TOKEN}", "8080", "*/*", "https://a.org/mcp"}


def test_each_key_of_a_list_counts() -> None:
    values = known_values({"AUTH_API_KEYS": "first-key-0123456789, second-key-9876543210"})
    assert {"first-key-0123456789", "second-key-9876543210"} <= set(values)


def test_each_value_of_a_list_counts_whatever_it_lists() -> None:
    values = known_values({"API_TOKENS": "first-0123456789 second-9876543210;third-555"})
    assert {"first-0123456789", "second-9876543210", "third-555"} <= set(values)


def test_literals_that_look_like_no_words_are_known_whatever_their_names() -> None:
    entries = [
        {"command": "server", "env": {"MOOD": "s3kr1t-literal-0042", "COLOUR": "Summer2024!"}},
        {"command": "server", "args": ["--seeded=zq81kfm29xw", "QwErTyUiOpAsDfGh", "a/b9x7c5v3"]},
        {"command": "curl -H 'Authorization: Bearer onlywords' --token otherwords; true"},
        {"command": "bash -c 'curl -H \"X-Mine: kq93jf72ls\" -u ann:swordfish https://a.org'"},
        {
            "command": "curl",
            "args": ["--header", "Authorization: token wordsagain", "-HX-Key:mywords"],
        },
        {
            "url": "https://a.org/mcp?mood=s3kr1t-literal-0043",
            "headers": {"X-B": "w0rd-4-w4rd-x9y8z"},
        },
    ]
    assert configured_values(entries) >= {
        *("s3kr1t-literal-0042", "Summer2024!", "zq81kfm29xw", "QwErTyUiOpAsDfGh", "a/b9x7c5v3"),
        *("onlywords", "otherwords", "kq93jf72ls", "swordfish", "wordsagain", "mywords"),
        *("s3kr1t-literal-0043", "w0rd-4-w4rd-x9y8z"),
    }


def test_ordinary_literals_of_servers_and_hooks_are_not_known() -> None:
    env = {
        "A": "true",
        "B": "1",
        "C": "us-east-1",
        "D": "claude-sonnet-4-5-20250929",
        "E": "/opt/node-v20.1/x9y8z7q",
        "F": "1.2.3-beta4",
        "G": "2026-01-01",
        "H": "8080",
        "I": "db-1.c9akciq32.eu-west-1.rds.amazonaws.com:5432",
        "J": "production",
        "K": "~/x9y8z7q",
        "L": "https://example.org/a/b1",
        "M": "-Xmx512m -Dfoo=1",
        "N": "utf-8",
        "O": "${TOKEN}",
        "P": "python3.11",
        "Q": "ann@example.org",
        "R": "@scope/server@1.2.3",
        "S": "info",
    }
    line = (
        "npx -y @modelcontextprotocol/server-github@2025.4.8 --port 8080 --level debug2 | head -5"
    )
    assert configured_values([{"command": line, "env": env}]) == set()
