"""A multipart request for an artifact: its parts `metadata` and `body`."""

import re

import msgspec
from msgspec import Struct

from batten.contract.errors import CallerError
from batten.protocols.hecate.artifacts import ArtifactMetadata, CreateArtifact

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


def is_multipart(content_type: str | None) -> bool:
    return (content_type or "").strip().lower().startswith("multipart/form-data")


def read_artifact(content_type: str, data: bytes) -> CreateArtifact:
    """The artifact of a multipart request. Raises `CallerError` if a part is missing or wrong."""
    parts = {part.name: part.content for part in read_parts(content_type, data)}
    for name, meaning in (("metadata", "a JSON object"), ("body", "the bytes")):
        if name not in parts:
            raise CallerError(f"the request has no part named {name}: {meaning} of the artifact")
    try:
        described = msgspec.json.decode(parts["metadata"], type=ArtifactMetadata)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CallerError(f"the part metadata does not fit: {error}") from error
    fields = {name: getattr(described, name) for name in described.__struct_fields__}
    return CreateArtifact(**fields, body_base64=parts["body"])


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
    for header in headers.split(b"\r\n"):
        key, _, value = header.partition(b":")
        if key.strip().lower() == b"content-disposition" and (found := _NAME.search(value)):
            return Part((found[1] or found[2] or b"").decode(errors="replace"), content)
    raise CallerError('a part of the body has no name: use Content-Disposition: …; name="body"')
