"""Reads the facts about the formats of secrets in `secret_formats.txt`, and makes up tokens."""

import re
import string
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from random import Random

from msgspec import Struct

FACTS = Path(__file__).parent / "secret_formats.txt"
UUID = "[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12}"
_ALPHABETS = {
    "hex": string.digits + "abcdef",
    "HEX": string.digits + "ABCDEF",
    "any": string.digits + "abcdefABCDEF",
    "num": string.digits,
    "low": string.digits + string.ascii_lowercase,
    "up": string.digits + string.ascii_uppercase,
    "abc": string.ascii_letters,
    "alnum": string.digits + string.ascii_letters,
    "url": string.digits + string.ascii_letters + "_-",
    "b64": string.digits + string.ascii_letters + "+/",
    "b32": "234567" + string.ascii_uppercase,
}
_CLASSES = {
    "hex": "a-f0-9",
    "HEX": "A-F0-9",
    "any": "a-fA-F0-9",
    "num": "0-9",
    "low": "a-z0-9",
    "up": "A-Z0-9",
    "abc": "A-Za-z",
    "alnum": "A-Za-z0-9",
    "url": "A-Za-z0-9_-",
    "b64": "A-Za-z0-9+/",
    "b32": "A-Z2-7",
}


class Part(Struct, frozen=True):
    """Literal text, or a run of characters of an alphabet."""

    literal: str = ""
    alphabet: str = ""
    least: int = 0
    most: int = 0

    @property
    def pattern(self) -> str:
        if self.literal:
            return re.escape(self.literal)
        if self.alphabet == "uuid":
            return UUID
        times = str(self.least) if self.least == self.most else f"{self.least},{self.most}"
        return f"[{_CLASSES[self.alphabet]}]{{{times}}}"

    @property
    def characters(self) -> set[str]:
        if self.literal:
            return set(self.literal)
        return (
            {*_ALPHABETS["hex"], "-"} if self.alphabet == "uuid" else {*_ALPHABETS[self.alphabet]}
        )


class Format(Struct, frozen=True):
    vendor: str
    parts: tuple[Part, ...]
    near: tuple[str, ...] = ()
    """Words, one of which must stand before the token."""
    padded: bool = False
    ends: bool = False
    """No other character of the alphabets of the parts may follow."""

    def token(self, seed: int = 0) -> str:
        """A made-up token of this format."""
        random = Random(f"{self.vendor} {seed}")
        return "".join(_made_up(part, random) for part in self.parts)


def formats() -> list[Format]:
    found: list[Format] = []
    for line in FACTS.read_text(encoding="utf-8").splitlines():
        if line and line[0] != "#":
            found += _formats_of(line)
    return found


def _formats_of(line: str) -> Iterator[Format]:
    fields = [field.strip() for field in line.split(" | ")]
    if len(fields) not in (2, 3):
        raise SystemExit(f"not a vendor, a token and perhaps words: {line}")
    vendor, token = fields[:2]
    near = tuple(word.strip() for word in fields[2].split(",")) if len(fields) == 3 else ()
    ends, padded = token.endswith("$"), token.endswith("=")
    stretches = re.split(r"\(([^)]*)\)", token.removesuffix("$").removesuffix("="))
    choices = [[one] if i % 2 == 0 else one.split("/") for i, one in enumerate(stretches)]
    for chosen in product(*choices):
        yield Format(vendor, tuple(_parts_of("".join(chosen))), near, padded, ends)


def _parts_of(token: str) -> Iterator[Part]:
    for stretch in re.split(r"(\{[^}]*\})", token):
        if not stretch.startswith("{"):
            if stretch:
                yield Part(literal=stretch)
            continue
        alphabet, _, length = stretch.strip("{}").partition(":")
        if alphabet == "uuid":
            yield Part(alphabet=alphabet, least=36, most=36)
            continue
        if alphabet not in _ALPHABETS:
            raise SystemExit(f"an unknown alphabet: {stretch}")
        least, _, most = length.partition("-")
        yield Part(alphabet=alphabet, least=int(least), most=int(most or least))


def _made_up(part: Part, random: Random) -> str:
    if part.literal:
        return part.literal
    if part.alphabet == "uuid":
        digits = "".join(random.choices(_ALPHABETS["hex"], k=32))
        cuts = (0, 8, 12, 16, 20, 32)
        return "-".join(digits[a:b] for a, b in pairwise(cuts))
    letters = _ALPHABETS[part.alphabet]
    return "".join(random.choices(letters, k=part.least))
