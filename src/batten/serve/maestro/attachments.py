"""Loads the attachments of a prompt: images as images, text files into the prompt's text."""

import mimetypes
import os
from collections.abc import Callable, Sequence

from msgspec import Struct

from batten.contract.conversation import File, Image
from batten.contract.errors import BattenError, CallerError
from batten.serve.attached_files import PICTURES, READ_AS_TEXT, read_attached
from batten.serve.maestro.limits import Limits
from batten.workspace.root import Root

_MOST_FILES = 256
_MOST_BYTES = 64 * 1024 * 1024
"""Of one prompt: further files are refused once the loaded ones exceed it."""
_LONGEST_SHOWN = 256


class Loaded(Struct, frozen=True, kw_only=True):
    """The loaded files, and the reason for each that could not be loaded."""

    count: int
    text: str
    images: tuple[Image, ...]
    files: tuple[File, ...]
    problems: tuple[str, ...]


def load(paths: Sequence[str], cwd: str, limits: Limits, may_read: Callable[[str], bool]) -> Loaded:
    """Read the files that may be read; blocks."""
    texts: list[str] = []
    images: list[Image] = []
    files: list[File] = []
    problems: list[str] = []
    taken = 0
    for path in paths[:_MOST_FILES]:
        try:
            if taken > _MOST_BYTES:
                raise CallerError(f"those before it have more than {_MOST_BYTES} bytes together")
            loaded = _load_one(path, cwd, limits, may_read)
        except BattenError as error:
            problems.append(f"Attachment {path[:_LONGEST_SHOWN]}: {error}")
            continue
        name = os.path.basename(path)
        taken += len(loaded.data) if isinstance(loaded, Image) else len(loaded)
        if isinstance(loaded, Image):
            images.append(loaded)
            texts.append(f"\n\n[Attached image: {name}]")
        else:
            texts.append(f"\n\n[Attached file: {name}]\n{loaded}")
            kind = mimetypes.guess_type(name)[0] or "text/plain"
            files.append(File(name, kind, loaded.encode()))
    if len(paths) > _MOST_FILES:
        left_out = len(paths) - _MOST_FILES
        problems.append(f"{left_out} attachments are left out; at most {_MOST_FILES} are taken")
    return Loaded(
        count=len(texts),
        text="".join(texts),
        images=tuple(images),
        files=tuple(files),
        problems=tuple(problems),
    )


def _load_one(path: str, cwd: str, limits: Limits, may_read: Callable[[str], bool]) -> Image | str:
    try:
        full = os.path.join(cwd, os.path.expanduser(path))
        if limits.is_confined:
            full = Root(cwd).resolve(full).path
        kind = mimetypes.guess_type(full)[0] or ""
        allowed = may_read(os.path.realpath(full))
    except (OSError, ValueError) as error:
        raise CallerError(f"it cannot be read: {error}"[:_LONGEST_SHOWN]) from error
    if not allowed:
        raise CallerError("a rule denies reading it")
    data = read_attached(full, limits.attachment_bytes)
    if kind.startswith("image/") and kind != READ_AS_TEXT:
        if kind not in PICTURES:
            raise CallerError(f"{kind} is no picture that a model can be shown")
        return Image(kind, data)
    text = data.decode("utf-8", "replace")
    if not text or "\0" in text:
        raise CallerError("it is neither a picture nor text")
    return text[: limits.attachment_characters]
