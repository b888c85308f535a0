"""Reads the files of `--attach`: text goes into the prompt in a marked block, pictures beside it.

The user named each file, so rules about the model's reading do not concern them.
"""

import mimetypes
import os
from collections.abc import Sequence

from msgspec import Struct

from batten.cli.prompt import LARGEST, TooLarge
from batten.contract.conversation import File, Image
from batten.contract.errors import BattenError, CallerError, NotFound
from batten.contract.marks import one_line
from batten.serve.attached_files import READ_AS_TEXT, read_attached
from batten.serve.output import warn
from batten.tools.reading import image_type

_MOST_PICTURES = 20 * 1024 * 1024
"""Bytes of all pictures together: encoded they fit into a request of any provider."""


class Attached(Struct, frozen=True, kw_only=True):
    """The files of one prompt."""

    text: str = ""
    """Blocks for the prompt's text."""
    images: tuple[Image, ...] = ()
    files: tuple[File, ...] = ()


def load(paths: Sequence[str], room: int) -> Attached:
    """Read all files; their text may have `room` bytes. Raises `NotFound`, `TooLarge` for too many
    bytes, and `CallerError` (usage) for a file that is neither text nor a picture.
    """
    blocks: list[str] = []
    images: list[Image] = []
    files: list[File] = []
    for path in paths:
        data, name = _read(path), one_line(path)
        kind = image_type(data)
        if kind is not None:
            images.append(Image(kind, data))
            blocks.append(f"[attached picture: {name}]")
            continue
        text = _text(path, data)
        room -= len(data)
        if room < 0:
            raise TooLarge(
                f"--attach {path}: the prompt, standard input and attached texts have more than "
                f"{LARGEST} bytes together"
            )
        blocks.append(marked("attached", text, name))
        guessed = mimetypes.guess_type(path)[0] or "text/plain"
        files.append(File(name, guessed, data))
    if sum(len(image.data) for image in images) > _MOST_PICTURES:
        raise TooLarge(f"--attach: the pictures have more than {_MOST_PICTURES} bytes together")
    return Attached(text="\n\n".join(blocks), images=tuple(images), files=tuple(files))


def _read(path: str) -> bytes:
    try:
        return read_attached(os.path.abspath(path), LARGEST)
    except BattenError as error:
        kind = TooLarge if error.code == "too_large" else NotFound
        raise kind(f"--attach {path}: {error}") from error


def _text(path: str, data: bytes) -> str:
    kind = mimetypes.guess_type(path)[0] or ""
    if kind.startswith("image/") and kind != READ_AS_TEXT:
        raise CallerError(
            f"--attach {path}: it is no PNG, JPEG, GIF or WebP, which models can be shown; "
            "convert it",
            code="usage",
        )
    return readable(data, f"--attach {path}")


def readable(data: bytes, source: str) -> str:
    """Text for the model. Bytes that are not UTF-8 are replaced, which is said; raises
    `CallerError` (usage) for data that is not text.
    """
    if b"\0" in data:
        raise CallerError(
            f"{source} is not text; pictures (PNG, JPEG, GIF, WebP) and texts can be given, "
            "pictures with --attach FILE",
            code="usage",
        )
    try:
        return data.decode()
    except UnicodeDecodeError:
        text = data.decode(errors="replace")
        warn(f"{source} is not all UTF-8: {text.count(chr(0xFFFD))} characters are replaced")
        return text


def marked(tag: str, text: str, name: str = "") -> str:
    """The text between tags of its own: none that is in the text, which could end the block."""
    while f"</{tag}>" in text:
        tag += "_"
    quoted = name.replace('"', "'")
    named = f' name="{quoted}"' if quoted else ""
    ending = "" if text.endswith("\n") else "\n"
    return f"<{tag}{named}>\n{text}{ending}</{tag}>"
