"""A multipart request for an artifact: its parts `metadata` and `body`."""

import re

import msgspec
from msgspec import UNSET, Struct

from batten.contract.errors import CallerError
from batten.protocols.hecate.artifacts import (
    ANY_BYTES,
    ArtifactMetadata,
    CreateArtifact,
    MediaType,
)

_BOUNDARY = re.compile(
    r"""multipart/form-data\s*;(?:.*;)?\s*boundary=(?:"(?P<quoted>[^"]{1,70})"|(?P<plain>[^\s;"]{1,70}))""",
    re.IGNORECASE,
)
_NAME = re.compile(rb'\bname="([^"]*)"|\bname=([^\s;"]+)', re.IGNORECASE)
_MOST_HEADERS = 4096
_PARTS = 2


class Part(Struct, frozen=True):
    name: str
    content: bytes
    media_type: str = ""
    """Its own Content-Type; empty without one."""


def is_multipart(content_type: str | None) -> bool:
    return (content_type or "").strip().lower().startswith("multipart/form-data")


def read_artifact(content_type: str, data: bytes) -> CreateArtifact:
    """The artifact of a multipart request. Raises `CallerError` if a part is missing or wrong.

    The type of the body is that of `metadata`, else that of its part.
    """
    parts: dict[str, Part] = {}
    for part in read_parts(content_type, data):
        if part.name in parts:
            raise CallerError(f"the request has two parts named {part.name}: send one")
        parts[part.name] = part
    for name, meaning in (("metadata", "a JSON object"), ("body", "the bytes")):
        if name not in parts:
            raise CallerError(f"the request has no part named {name}: {meaning} of the artifact")
    body = parts["body"]
    try:
        described = msgspec.json.decode(parts["metadata"].content, type=ArtifactMetadata)
        fields = {name: getattr(described, name) for name in described.__struct_fields__}
        # Programs send the type of any bytes when they know no other.
        if described.mime_type is UNSET and body.media_type not in ("", ANY_BYTES):
            fields["mime_type"] = msgspec.convert(body.media_type, MediaType)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CallerError(f"the part metadata does not fit: {error}") from error
    return CreateArtifact(**fields, body_base64=body.content)


def read_parts(content_type: str, data: bytes) -> list[Part]:
    """The parts of a body, in order."""
    found = _BOUNDARY.match(content_type.strip())
    if found is None:
        raise CallerError("Content-Type needs multipart/form-data with a boundary")
    boundary = b"--" + (found["quoted"] or found["plain"]).encode()
    # The first boundary may be without a line end before it.
    pieces = (b"\r\n" + data).split(b"\r\n" + boundary)
    if len(pieces) < _PARTS or not pieces[-1].startswith(b"--"):
        raise CallerError("the body does not end with its closing boundary: it was cut off")
    return [_part(piece) for piece in pieces[1:-1]]


def _part(piece: bytes) -> Part:
    line, _, rest = piece.partition(b"\r\n")
    headers, blank, content = (b"\r\n" + rest).partition(b"\r\n\r\n")
    if line.strip() or not blank or len(headers) > _MOST_HEADERS:
        raise CallerError("a part of the body has no headers: it needs Content-Disposition")
    lines = (header.partition(b":") for header in headers.split(b"\r\n"))
    known = {key.strip().lower(): value.strip() for key, _, value in lines}
    found = _NAME.search(known.get(b"content-disposition", b""))
    if found is None:
        raise CallerError('a part of the body has no name: use Content-Disposition: …; name="body"')
    name = (found[1] or found[2] or b"").decode(errors="replace")
    return Part(name, content, known.get(b"content-type", b"").decode(errors="replace"))
