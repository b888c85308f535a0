"""What can be seen of a line that cannot be read for certain: its parts, to deny them."""

import re

from batten.agent.rules.shell import HOLE, SimpleCommand

OPERATORS = re.compile(r"[;&|\n`<>]|\$\(")
_BEFORE = re.compile(
    r"^(?:\s+|[({!]\s*|(?:then|do|else|elif|if|while|time)\s+|\w+=\S*(?:\s+|$)"
    r"|(?:function\s+)?[\w-]+\s*\(\)\s*|function\s+[\w-]+\s+)+"
)
"""What may stand before a command, in a line that cannot be read."""


def seen(text: str) -> list[SimpleCommand]:
    """The parts of a text as they are written, without what may stand before their commands, and
    with holes for what is replaced when it runs."""
    text = text.replace("\\\n", "")
    parts = [part.strip() for part in OPERATORS.split(text.replace(HOLE, ""))]
    bare = [unquoted(_BEFORE.sub("", part)) for part in parts]
    marked = (unquoted(_BEFORE.sub("", part)) for part in OPERATORS.split(_opened(text)))
    holes = [" ".join(map(_with_hole, part.split())) for part in marked]
    every = dict.fromkeys(filter(None, (*parts, *bare, *holes)))
    return [SimpleCommand(tuple(part.split()), part) for part in every]


def unquoted(text: str) -> str:
    return re.sub(r"[\\'\"]", "", text)


def _opened(text: str) -> str:
    """A text with a hole where each substitution begins or ends within a word."""
    return re.sub(r"(`|\$\()", rf"{HOLE}\1", text)


def _with_hole(word: str) -> str:
    """A word up to what bash may put something else in the place of."""
    if word in ("[", "[[", "{"):
        return word
    found = re.search(rf"[$*?\[{{{HOLE}]", word)
    return word if found is None else word[: found.start()] + HOLE
