"""How much of the corpus is found, and how much ordinary code is changed."""

import sysconfig
from pathlib import Path

import pytest

import batten
from batten.redact.redactor import Redactor
from batten.redact.stream import StreamRedactor
from tests.redact.corpus import KNOWN_SECRET, SHAPES, SPELLINGS

REDACTOR = Redactor()
MOST_CHANGED = 0.0001


def found(text: str, secret: str, redactor: Redactor) -> bool:
    redacted = redactor.text(text)
    return secret not in redacted and secret[-6:] not in redacted and "<redacted>" in redacted


def test_all_shapes_of_the_corpus_are_found() -> None:
    assert [t for t, secret in SHAPES if not found(t.format(secret), secret, REDACTOR)] == []


@pytest.mark.parametrize("name", ["DEPLOY_TOKEN", "db_password"])
def test_all_spellings_of_a_known_value_are_found(name: str) -> None:
    redactor = Redactor.from_environment({name: KNOWN_SECRET})
    missed: list[str] = []
    for spelling, write in SPELLINGS.items():
        text = write(KNOWN_SECRET)
        shown = redactor.text(f"< {text} >")
        # Encodings in groups may leave a neighbour's share of the outermost characters.
        if text in shown or len(shown) > len("< <redacted> >") + 16:
            missed.append(spelling)
    assert missed == []


@pytest.mark.parametrize(("template", "secret"), SHAPES)
def test_a_shape_is_found_however_it_is_cut(template: str, secret: str) -> None:
    text = f"before\n{template.format(secret)}\nafter"
    whole = REDACTOR.text(text)
    for place in range(1, len(text)):
        stream = StreamRedactor(REDACTOR)
        assert stream.feed(text[:place]) + stream.feed(text[place:]) + stream.flush() == whole


TOKENS = [
    "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8",
    "xoxb-123456789012-123456789012-abcdefghijklmnopqrstuvwx",
    "AKIA" + "IOSFODNN7EXAMPLQ",
    "sk-ant-api03-abcdEFGH1234ijklMNOP5678qrstUVWX90yz",
]
ESCAPES = [
    *(r"line\n{}", r"\t{}\n", r"\u0022{}\u0022", r"\x22{}", "token%3D{}", "%20{}%20"),
    *("\x1b[32m{}\x1b[0m", "\x1b[1;31m{}", "\x1b[38;5;208m{}", "\x1b[m\x1b[K{}"),
]


@pytest.mark.parametrize("secret", TOKENS)
@pytest.mark.parametrize("template", ESCAPES)
def test_a_known_format_is_found_behind_the_last_letter_of_an_escape(
    template: str, secret: str
) -> None:
    text = f"before {template.format(secret)} after"
    for redactor in (REDACTOR, REDACTOR.authored):
        assert found(text, secret, redactor)
        whole = redactor.text(text)
        for place in range(1, len(text)):
            stream = StreamRedactor(redactor)
            assert stream.feed(text[:place]) + stream.feed(text[place:]) + stream.flush() == whole


@pytest.mark.parametrize("first", TOKENS)
@pytest.mark.parametrize(
    "second", ["ghp_" + "9z8Y7x6W5v4U3t2S1r0Q9p8O7n6M5l4K3j2I", "npm_" + "9z8Y" * 9]
)
def test_a_known_format_is_found_right_behind_another_token(first: str, second: str) -> None:
    text = f"before {first}{second} after"
    for redactor in (REDACTOR, REDACTOR.authored):
        whole = redactor.text(text)
        assert second[4:] not in whole
        assert first[8:] not in whole
        for place in range(1, len(text)):
            stream = StreamRedactor(redactor)
            assert stream.feed(text[:place]) + stream.feed(text[place:]) + stream.flush() == whole


def ordinary() -> list[Path]:
    """Our own sources and a tenth of the standard library."""
    library = Path(sysconfig.get_paths()["stdlib"])
    modules = sorted(one for one in library.rglob("*.py") if "site-packages" not in one.parts)
    return [*Path(batten.__file__).parent.rglob("*.py"), *modules[::10]]


def test_ordinary_code_is_hardly_changed() -> None:
    lines = changed = 0
    for path in ordinary():
        text = path.read_text(errors="replace")
        lines += text.count("\n")
        redacted = REDACTOR.text(text)
        if redacted != text:
            changed += redacted.count("<redacted>") - text.count("<redacted>")
    assert lines > 50_000
    assert changed / lines <= MOST_CHANGED, f"{changed} of {lines} lines"
