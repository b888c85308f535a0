"""Cuts texts for people so that the cut is visible."""


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
