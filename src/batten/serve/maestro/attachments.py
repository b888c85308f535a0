"""Files that come with a prompt: pictures as they are, texts as part of its words."""

import mimetypes
import os
from collections.abc import Mapping, Sequence

from msgspec import Struct

from batten.contract.conversation import Image
from batten.contract.errors import BattenError, CallerError, NotFound

_PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Those that models look at."""
_READ_AS_TEXT = "image/svg+xml"


class Limits(Struct, frozen=True, kw_only=True):
    most_bytes: int = 10 * 1024 * 1024
    """Of one file; a file of exactly this size is taken."""
    most_characters: int = 200_000
    """Of the text of one file; the rest is left out."""


class Loaded(Struct, frozen=True, kw_only=True):
    """What became of the files: those that could not be used are named with the reason."""

    count: int
    text: str
    images: tuple[Image, ...]
    problems: tuple[str, ...]


def limits_of(environ: Mapping[str, str]) -> Limits:
    """From `MAESTRO_HEADLESS_MAX_ATTACHMENT_BYTES` and `MAESTRO_HEADLESS_MAX_TEXT_CHARS`."""
    usual = Limits()
    return Limits(
        most_bytes=_number(environ, "MAESTRO_HEADLESS_MAX_ATTACHMENT_BYTES", usual.most_bytes),
        most_characters=_number(environ, "MAESTRO_HEADLESS_MAX_TEXT_CHARS", usual.most_characters),
    )


def _number(environ: Mapping[str, str], variable: str, usual: int) -> int:
    text = environ.get(variable, "").strip()
    if not text:
        return usual
    if not (text.isascii() and text.isdigit() and int(text)):
        raise CallerError(f"{variable} is {text!r}; it is a positive number", code="config")
    return int(text)


def load(paths: Sequence[str], cwd: str, limits: Limits) -> Loaded:
    """Read the files; blocks while it does."""
    texts: list[str] = []
    images: list[Image] = []
    problems: list[str] = []
    for path in paths:
        try:
            loaded = _load_one(path, cwd, limits)
        except BattenError as error:
            problems.append(f"Attachment {path}: {error}")
            continue
        if isinstance(loaded, Image):
            images.append(loaded)
        else:
            texts.append(f"\n\n[Attached file: {os.path.basename(path)}]\n{loaded}")
    return Loaded(
        count=len(texts) + len(images),
        text="".join(texts),
        images=tuple(images),
        problems=tuple(problems),
    )


def _load_one(path: str, cwd: str, limits: Limits) -> Image | str:
    full = os.path.join(cwd, os.path.expanduser(path))
    kind = mimetypes.guess_type(full)[0] or ""
    try:
        if not os.path.isfile(full):
            raise NotFound("there is no such file")
        with open(full, "rb") as file:
            data = file.read(limits.most_bytes + 1)
    except (OSError, ValueError) as error:
        raise CallerError(f"it cannot be read: {error}") from error
    if len(data) > limits.most_bytes:
        raise CallerError(f"it is larger than {limits.most_bytes} bytes")
    if kind.startswith("image/") and kind != _READ_AS_TEXT:
        if kind not in _PICTURES:
            raise CallerError(f"{kind} is no picture that a model can be shown")
        return Image(kind, data)
    text = data.decode("utf-8", "replace")
    if not text or "\0" in text:
        raise CallerError("it is neither a picture nor text")
    return text[: limits.most_characters]
