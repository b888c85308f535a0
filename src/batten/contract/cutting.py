"""Cuts texts for people so that the cut is visible."""

from batten.contract.marks import one_line


def cut(text: str, most: int) -> str:
    """The text; a longer one ends with a mark that gives the length and the digest of the whole."""
    if len(text) <= most:
        return text
    from hashlib import sha256

    digest = sha256(text.encode(errors="replace")).hexdigest()
    return f"{text[:most]}… [cut here: {len(text)} characters, sha256 {digest}]"


def shortened(text: str, most: int) -> str:
    """The text for a title; a longer one ends with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def first_line(text: str) -> str:
    """The first line with anything on it, by any character that ends a line."""
    lines = text.strip().splitlines()
    return lines[0] if lines else ""


def call_in_short(tool_name: str, subject: object, most: int = 200) -> str:
    """A call on one line, as rules spell it: `bash(git push)`. The tool alone without a subject."""
    if not isinstance(subject, str) or not subject:
        return tool_name
    return f"{tool_name}({shortened(one_line('⏎'.join(subject.splitlines())), most)})"
