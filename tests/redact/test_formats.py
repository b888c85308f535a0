"""The formats of the list of facts are found, however they arrive, and little else is."""

import base64
import random
import uuid
from pathlib import Path

import pytest
from scripts.generate_formats import written

import batten.redact.formats
from batten.redact.redactor import Redactor
from batten.redact.stream import StreamRedactor
from tests.redact.corpus import FORMATS, MARKED, NAMED_PLACES, NEAR, PLACES

pytestmark = pytest.mark.attack

REDACTOR = Redactor()


def is_hidden(shown: str, token: str) -> bool:
    return token not in shown and token[-6:] not in shown and "<redacted>" in shown


def test_the_file_of_formats_is_written_from_the_list_of_facts() -> None:
    path = Path(batten.redact.formats.__file__).parent / "formats.json"
    assert path.read_text() == written()
    assert len({one.vendor.partition(",")[0] for one, _ in FORMATS}) > 300
    assert len(MARKED) > 300


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("redactor", [REDACTOR, REDACTOR.authored])
def test_every_token_with_a_mark_is_found(place: str, redactor: Redactor) -> None:
    missed = [token for token in MARKED if not is_hidden(redactor.text(place.format(token)), token)]
    assert missed == []


@pytest.mark.parametrize("place", NAMED_PLACES)
def test_every_token_without_a_mark_is_found_near_the_name_of_its_vendor(place: str) -> None:
    texts = [
        (token, place.format(word=word, WORD=word.upper(), token=token)) for word, token in NEAR
    ]
    missed = [text for token, text in texts if not is_hidden(REDACTOR.text(text), token)]
    assert missed == []


def test_a_vendor_and_a_word_for_secrets_are_enough_in_what_a_person_wrote() -> None:
    authored = REDACTOR.authored
    for word, token in NEAR:
        shown = authored.text(f'my {word} key is "{token}", as you know')
        assert is_hidden(shown, token), shown
        plain = f'build {word} at "{token}"'
        assert authored.text(plain) in (plain, REDACTOR.text(plain))


@pytest.mark.parametrize(
    "line",
    [
        "      - uses: {word}/setup-action@{sha1} # v4",
        "image: {word}/agent:7@sha256:{sha256}",
        "{word}==1.2.3 --hash=sha256:{sha256}",
        "INFO {word}.client request_id={md5} took 5 ms",
        '{{"service": "{word}", "trace_id": "{uuid}"}}',
        "{word} build id: {uuid}",
    ],
)
def test_digests_pinned_commits_and_ids_of_logs_near_a_vendor_stay(line: str) -> None:
    chance = random.Random(11)
    for word in filter(str.isalpha, dict(NEAR)):
        text = line.format(
            word=word,
            sha1=chance.randbytes(20).hex(),
            sha256=chance.randbytes(32).hex(),
            md5=chance.randbytes(16).hex(),
            uuid=uuid.UUID(bytes=chance.randbytes(16)),
        )
        assert REDACTOR.text(text) == text


def test_random_looking_values_far_from_any_vendor_stay() -> None:
    chance = random.Random(7)
    for _ in range(50):
        digest, raw = chance.randbytes(20).hex(), base64.b64encode(chance.randbytes(30)).decode()
        number = uuid.UUID(bytes=chance.randbytes(16))
        text = f'sha1 = "{digest}"; id: {number}, body="{raw}", path /srv/{digest[:8]}/{number}'
        assert REDACTOR.text(text) == text


@pytest.mark.parametrize("size", [1, 5, 16, 61])
@pytest.mark.parametrize("redactor", [REDACTOR, REDACTOR.authored])
def test_tokens_in_pieces_are_found_as_in_the_whole(redactor: Redactor, size: int) -> None:
    tokens = [(token, f"it uses {token}, I think\n") for token in MARKED]
    tokens += [(token, f'{word}: "{token}"\nand {word} {token} too\n') for word, token in NEAR]
    for token, text in tokens:
        stream = StreamRedactor(redactor)
        shown = ""
        for place in range(0, len(text), size):
            shown += stream.feed(text[place : place + size])
            assert stream.held < 200
        assert shown + stream.flush() == redactor.text(text), token


def test_all_tokens_in_one_stream_are_found_as_in_the_whole() -> None:
    text = "".join(
        f"{token} {word} = {other}\n"
        for token, (word, other) in zip(MARKED, NEAR * 2, strict=False)
    )
    whole = REDACTOR.text(text)
    for size in (1, 97, 1000, 5000):
        stream = StreamRedactor(REDACTOR)
        pieces = (text[place : place + size] for place in range(0, len(text), size))
        assert "".join(map(stream.feed, pieces)) + stream.flush() == whole


HOSTILE = (
    *("a", "A", "/", "ghp_", "ghp_A1b2C3d4E5f6G7h8I9j0K1L2M3N4O5P6", "AKIA", "xoxb-1-", "sk-a1"),
    *(
        ":1234567890123",
        " 1a2b3c4d5e6f7a8",
        "\\",
        "\\n",
        "_\b",
        "\x1b[",
        "\x1b]",
        "\x1b[0",
        "eyJa.",
    ),
    *('datadog="', '"0123456789abcdef0123456789abcdef" ', "s.a1b2c3d4e5f6", "\u200b", "x\0", "="),
)


@pytest.mark.parametrize("unit", HOSTILE)
def test_a_long_line_of_one_thing_is_read_once_and_held_back_within_bounds(unit: str) -> None:
    redactor = Redactor(["abcdefghijklmnop-1234", "aaaaaaaaab1", "-----------------x1-"])
    text = unit * (50_000 // len(unit))
    stream = StreamRedactor(redactor)
    shown = ""
    for place in range(0, len(text), 997):
        shown += stream.feed(text[place : place + 997])
        assert stream.held < 1500
    assert shown + stream.flush() == redactor.text(text)


@pytest.mark.parametrize(
    "text",
    [
        "hf_transfer, npm_config_registry, api_org_name and glpat-please-put-yours",
        "sk-ecdsa-sha2-nistp256@openssh.com, sk-ssh-ed25519@openssh.com",
        "self.assertions.checkThatNothingIsChangedHere(os.pathsep)",
        "git commit 0a1b2c3d4e5f60718293a4b5c6d7e8f901234567 of linear history",
        "https://example.org/a/b-c_d/2024-01-01T00:00:00Z?page=12&sort=name",
        "pk_index and sk_buff_head_init, rk_live, key-value, st.session, pat.match(x)",
        "token-2024:abc s.name b.value t1.start 1/2 0.5 A3-B",
        "Q~ and 8Q~x, sha256~abc, AccountKey=, tskey-auth-...",
        'version = "20240101", name: "claude-sonnet-4-5-20250929", region: us-east-1',
    ],
)
def test_names_that_begin_like_tokens_stay(text: str) -> None:
    assert REDACTOR.text(text) == text
