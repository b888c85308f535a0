"""What is taken out of whole texts and values, and what is left alone."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import batten
from batten.contract.depth import is_too_deep
from batten.redact.redactor import TOO_DEEP, Redactor, redacted_bytes, union
from batten.redact.scan import MARK
from tests.redact.planted import BODY, HEX, KNOWN, LINES, PEM, VENDORS

REDACTOR = Redactor(KNOWN)


@pytest.mark.parametrize("secret", VENDORS)
def test_keys_of_known_vendors_are_found_by_their_looks(secret: str) -> None:
    redacted = REDACTOR.text(f"it uses {secret}, I think")
    assert secret not in redacted
    assert secret[-12:] not in redacted
    assert redacted.startswith("it uses ")
    assert redacted.endswith("<redacted>, I think")


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("password=hunter2", "password=<redacted>"),
        ("password: hunter2\nuser: ann", "password: <redacted>\nuser: ann"),
        ('"password": "letmein!"', '"password": "<redacted>"'),
        ("'Secret' => 'letmein!'", "'Secret' => '<redacted>'"),
        ('{\\"api_key\\": \\"a1b2c3d4e5\\"}', '{\\"api_key\\": \\"<redacted>\\"}'),
        ("export DB_PASSWORD=swordfish\n", "export DB_PASSWORD=<redacted>\n"),
        ("host=db password=swordfish user=ann", "host=db password=<redacted> user=ann"),
        ("?access_token=abc123def&page=2", "?access_token=<redacted>&page=2"),
        ("X-Api-Key: 8f14e45fceea167a", "X-Api-Key: <redacted>"),
        ("Authorization: Bearer abc123def456", "Authorization: Bearer <redacted>"),
        ("authorization: Basic dXNlcjpwYXNz1234", "authorization: Basic <redacted>"),
        ("curl -H 'Authorization: token a1b2c3d4e5'", "curl -H 'Authorization: token <redacted>'"),
        ("postgres://ann:s3same@db/x", "postgres://ann:<redacted>@db/x"),
        ("AWS_SECRET_ACCESS_KEY = 'wJalrXUtnFEMI/K7MDENG'", "AWS_SECRET_ACCESS_KEY = '<redacted>'"),
        ("clientSecret: 9f8e7d6c5b", "clientSecret: <redacted>"),
        ("AccountKey=Zm9vYmFyMTIzNA==;End=x", "AccountKey=<redacted>;End=x"),
        (f"/blob?sv=2024&sig={HEX}%3D&se=1", "/blob?sv=2024&sig=<redacted>&se=1"),
    ],
)
def test_values_assigned_to_names_that_say_so_are_found(text: str, redacted: str) -> None:
    assert REDACTOR.text(text) == redacted


@pytest.mark.parametrize(
    "text",
    [
        "Run options: --seed 54321",
        "cargo test -- --shuffle-seed 1617181920212",
        "again with `rspec --seed 54321`.",
        "def login(user: str, password: str) -> Token:",
        "token = next(tokens)",
        "token = basic éééééééé",
        "max_tokens: 8192, input_tokens=120",
        "login(password=password, token=self.token)",
        'payload["token"] = make_token(user)',
        "secret: SecretStr | None = None",
        "password: required, at least 12 characters",
        'parser.add_argument("--api-key", help="the key")',
        "api_key=os.environ['API_KEY']",
        "API_KEY=$OTHER_KEY",
        "a bearer of bad news",
        "Bearer authentication is used",
        "http://localhost:8080/path and user@host",
        "task-management-for-2024-and-later-on",
        "-----BEGIN PRIVATE KEY----- begins such a block",
        "-----BEGIN CERTIFICATE-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END CERTIFICATE-----",
        "compass: north42, author: alice77",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "run_01JXMZABCDEFGHJKMNPQRSTVWX",
        "SG.UserInterface.render(view2) and SG.3",
        "the xapp-2024 and xapp-helper packages, pypi-attestations-0.0.12-py3-none-any",
        "pypi-Agatha2024 wrote it",
        "ya29.example and version hvs.core.module2",
        "AGE-SECRET-KEY-1 begins such a key; AGE-SECRET-KEY-1... too",
        f"SK{HEX[:30]} is too short, SK{HEX}0 too long, and ASK{HEX} no word of its own",
        "SKeleton, SKU 42, TASKabc123",
        "GOCSPX-placeholder, HRKU-please-put-your-own-key-here-now",
        "npm_config_registry, hf_transfer, gsk_test, r8_optimizer, sbp_enabled, ntn_network",
        "rubygems_version=3.4.10, glc_gen1, figd_file_name_2, lin_api_client, pscale_tkn_name",
        "AccountKey = account_key(name)",
        "https://hooks.slack.com/services/YOUR/WEBHOOK/HERE",
        "https://discord.com/api/webhooks/123456789012345678/token",
        "a?sig=none&design=flat1",
    ],
)
def test_ordinary_code_and_prose_is_left_alone(text: str) -> None:
    assert REDACTOR.text(text) == text


def test_a_private_key_keeps_its_frame_and_loses_its_body() -> None:
    redacted = REDACTOR.text(f"key:\n{PEM}\nend")
    assert BODY.split("\n")[1] not in redacted
    assert redacted == (
        "key:\n-----BEGIN RSA PRIVATE KEY-----<redacted>-----END RSA PRIVATE KEY-----\nend"
    )


def test_a_private_key_on_one_line_of_json_loses_its_body() -> None:
    escaped = PEM.replace("\n", "\\n")
    assert REDACTOR.text(f'{{"k":"{escaped}"}}') == (
        '{"k":"-----BEGIN RSA PRIVATE KEY-----<redacted>-----END RSA PRIVATE KEY-----"}'
    )


@pytest.mark.parametrize("before", ["-", "+", " ", "conf/id_rsa:{}:", "id_rsa-{}-", "{:>6}\t"])
@pytest.mark.parametrize("part", [slice(None), slice(1, None), slice(None, -1)])
def test_a_private_key_in_a_diff_or_a_search_loses_its_body(before: str, part: slice) -> None:
    lines = [PEM.split("\n")[0], LINES[0], LINES[2], LINES[3], PEM.split("\n")[-1]]
    shown = [before.format(number) + line for number, line in enumerate(lines)][part]
    redacted = REDACTOR.text("\n".join(["@@ -1 +1 @@", *shown, "(after it)"]))
    assert not any(line[16:] in redacted for line in lines[1:-2])
    assert LINES[3] not in redacted
    assert redacted.endswith("(after it)")


def test_lines_that_only_look_like_a_key_are_left_alone() -> None:
    text = "\n".join(["a.txt:1:" + line for line in LINES] + ["-----END CERTIFICATE-----", ""])
    assert REDACTOR.text(text) is text


def test_our_own_sources_have_no_secrets() -> None:
    sources = list(Path(batten.__file__).parent.rglob("*.py"))
    assert len(sources) > 10
    assert [path.name for path in sources if REDACTOR.contains(path.read_text())] == []


@given(st.text(max_size=60), st.text(max_size=60), st.sampled_from(KNOWN))
def test_a_known_value_is_in_no_output(before: str, after: str, value: str) -> None:
    redacted = REDACTOR.text(before + value + after)
    assert value not in redacted
    assert "<redacted>" in redacted
    assert REDACTOR.contains(before + value + after)


@given(st.text())
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = REDACTOR.text(text)
    assert REDACTOR.text(once) == once


def test_a_text_asked_for_again_gets_the_same_answer_whatever_came_between() -> None:
    redactor = Redactor(["hunter-two-hunter"])
    texts = {"a name": "a name", "say hunter-two-hunter": "say <redacted>"}
    for count in range(3000):
        redactor.text(f"name {count}")
        for text, clean in texts.items():
            assert redactor.text(text) == clean


def test_secrets_in_a_value_are_replaced_and_their_paths_told() -> None:
    value = {
        "input": {
            "headers": {"Authorization": "Bearer abc", "Accept": "text/html"},
            "args": ["-H", "password=hunter2", 3, None],
        },
        "max_tokens": "many",
    }
    assert REDACTOR.value(value) == (
        {
            "input": {
                "headers": {"Authorization": "<redacted>", "Accept": "text/html"},
                "args": ["-H", "password=<redacted>", 3, None],
            },
            "max_tokens": "many",
        },
        ["input.headers.Authorization", "input.args[1]"],
    )


def test_secrets_that_are_keys_are_replaced_and_none_of_their_values_is_lost() -> None:
    first, second = KNOWN[0], KNOWN[1]
    value = {"a": {first: 1, second: 2, "b": [{"x" + first: "y"}]}}
    redacted, paths = REDACTOR.value(value)
    assert redacted == {"a": {"<redacted>": 1, "<redacted> (2)": 2, "b": [{"x<redacted>": "y"}]}}
    assert paths == ["a.<redacted>", "a.<redacted> (2)", "a.b[0].x<redacted>"]


def test_a_value_without_secrets_comes_back_itself() -> None:
    value = {"command": "ls -la", "env": {"HOME": "/root"}, "n": [1, 2.5, True]}
    redacted, paths = REDACTOR.value(value)
    assert redacted is value
    assert paths == []


@pytest.mark.parametrize("levels", [200, 10_000])
def test_what_lies_too_deep_to_be_looked_at_is_taken_out(levels: int) -> None:
    value: Any = KNOWN[0]
    for number in range(levels):
        value = [value] if number % 2 else {"a": value}
    redacted, paths = REDACTOR.value({"deep": value, "shallow": KNOWN[1]})
    assert redacted["shallow"] == "<redacted>"
    assert len(paths) == 2
    shown = json.dumps(redacted)
    assert shown.count(TOO_DEEP) == 1
    assert KNOWN[0] not in shown


@given(st.integers(0, 30), st.integers(0, 30))
def test_a_value_is_too_deep_if_something_lies_deeper_than_that(levels: int, deepest: int) -> None:
    value: Any = 1
    for number in range(levels):
        value = [0, value] if number % 2 else {"a": value, "b": []}
    assert is_too_deep(value, deepest) is (levels > deepest)


def test_bytes_that_are_not_utf8_stay_as_they_are() -> None:
    assert (
        redacted_bytes(b"\xff\xfe s3kr1t-Value-99 \x80", REDACTOR.text)
        == b"\xff\xfe <redacted> \x80"
    )


def test_many_triggers_in_one_long_run_are_read_once() -> None:
    assert REDACTOR.text("k1_token=" * 40_000) == "k1_token=<redacted>"


def test_touching_secrets_become_one_mark() -> None:
    assert union([(5, 8), (0, 5), (9, 10), (6, 7)]) == [(0, 8), (9, 10)]
    assert REDACTOR.text("s3kr1t-Value-99abcabcabc1") == "<redacted>"


@pytest.mark.parametrize(
    "text",
    [
        'const token = "abc123def456"',
        '{"password": "hunter2"}',
        "password=hunter2 curl -u ann:hunter2x https://ann:hunter2@example.org",
        "Cookie: session=abc123def456",
        "Authorization: Bearer abc123def456",
        "<password>hunter2</password>",
    ],
)
def test_what_a_model_or_a_person_wrote_is_not_rewritten_by_guesses(text: str) -> None:
    authored = REDACTOR.authored
    assert authored.text(text) == text
    assert REDACTOR.text(text) != text
    value = {"password": "hunter2", "headers": {"Authorization": "x12345678"}, "text": text}
    assert authored.value(value) == (value, [])


def test_credentials_in_the_headers_of_a_request_are_no_guess() -> None:
    headers = {"Authorization": "Bearer x1234", "Accept": "text/html", "X-Api-Key": "", "Cookie": 1}
    value = {
        "asked": [{"url": "https://example.org", "headers": headers}],
        "url": "https://example.org",
        "headers": {"Authorization": "$TOKEN"},
        "Authorization": "a word",
    }
    redacted, paths = REDACTOR.authored.value(value)
    assert paths == ["asked[0].headers.Authorization"]
    shown = {**headers, "Authorization": MARK}
    assert redacted == {**value, "asked": [{"url": "https://example.org", "headers": shown}]}
    assert REDACTOR.authored.value(redacted) == (redacted, [])


@pytest.mark.parametrize("secret", [*VENDORS, *KNOWN])
def test_known_values_and_formats_are_found_in_what_a_model_or_a_person_wrote(secret: str) -> None:
    redacted = REDACTOR.authored.text(f"it uses {secret}, I think")
    assert secret[-9:] not in redacted
    assert REDACTOR.authored.authored is REDACTOR.authored


def test_a_private_key_is_found_in_what_a_model_or_a_person_wrote() -> None:
    assert BODY.split("\n")[1] not in REDACTOR.authored.text(PEM)


_WORDS = ("sk_live_", "ghp_", "github_pat_", "AKIA", "AIza", "SK", "token_", "api_key_", "passwd")


@given(
    st.lists(st.sampled_from(_WORDS) | st.text("abzABZ_", max_size=12), max_size=4).map("_".join)
)
def test_a_name_of_letters_has_no_shape_of_a_secret(name: str) -> None:
    assert not REDACTOR.contains(f"{name}\0")
    assert REDACTOR.text(name) == name


def test_a_known_value_that_is_a_word_is_found() -> None:
    assert Redactor(["CorrectHorseBattery"]).text("CorrectHorseBattery") == "<redacted>"


def test_names_of_variables_and_of_our_own_fields_compile_no_pattern() -> None:
    program = (
        "import re; from batten.redact.redactor import Redactor; from batten.redact import shapes; "
        "redactor = Redactor.from_environment({'API_TOKEN': 'x1y2z3a4', 'LANG': 'C'}); "
        "redactor.value({'max_output_tokens': ['LANG', 'SHELL'], 'spent_before_micros_usd': 1}); "
        "print(shapes.compiled.cache_info().currsize, len(re._cache))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    bare = subprocess.run(
        [sys.executable, "-c", "import re, batten.redact.redactor; print(0, len(re._cache))"],
        capture_output=True,
        check=True,
        text=True,
    )
    assert ended.stdout == bare.stdout
