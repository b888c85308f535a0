"""Translates a client's prompt: its blocks become one text and the images with it."""

from binascii import Error as NotBase64
from collections.abc import Sequence

from batten.contract.commands import Prompt
from batten.contract.conversation import File, Image
from batten.protocols.acp import content
from batten.protocols.acp.rpc import INVALID_PARAMS, RpcError

_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def command_of(blocks: Sequence[content.Block]) -> Prompt:
    """The prompt in these blocks; `RpcError` for content that we did not advertise."""
    texts: list[str] = []
    images: list[Image] = []
    files: list[File] = []
    for block in blocks:
        match block:
            case content.TextBlock():
                texts.append(block.text)
            case content.ImageBlock():
                images.append(_image(block.mime_type, block.data))
            case content.ResourceLink():
                texts.append(f"[@{block.name}]({block.uri})")
            case content.EmbeddedResource(resource=resource) if resource.text is not None:
                texts.append(_context(resource.uri, resource.text))
                files.append(_attached(resource, resource.text.encode("utf-8", "replace")))
            case content.EmbeddedResource(resource=resource) if resource.mime_type in _PICTURES:
                images.append(Image(resource.mime_type, _blob(resource)))
                texts.append(f"[@{resource.uri}]")
            case content.EmbeddedResource(resource=resource):
                blob = _blob(resource)
                texts.append(_file(resource, blob))
                files.append(_attached(resource, blob))
            case content.AudioBlock():
                raise RpcError(INVALID_PARAMS, "audio is not among what this agent takes")
    text = "\n".join(texts)
    if not text.strip() and not images:
        raise RpcError(INVALID_PARAMS, "the prompt is empty")
    return Prompt(text=text, images=tuple(images), files=tuple(files))


def _context(uri: str, text: str) -> str:
    """A file in the prompt, marked so that the model does not take it for the user's words."""
    from html import escape

    return f'\n<context uri="{escape(uri)}">\n{text}\n</context>\n'


def _attached(resource: content.Resource, data: bytes) -> File:
    return File(resource.uri, resource.mime_type or "application/octet-stream", data)


def _file(resource: content.Resource, blob: bytes) -> str:
    """A file sent as bytes: its text if it is text, else its type and size."""
    try:
        text = blob.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" not in text:
        return _context(resource.uri, text)
    kind = f" of {resource.mime_type}" if resource.mime_type else ""
    return f"[@{resource.uri}] ({len(blob)} bytes{kind}, which are no text)"


def _blob(resource: content.Resource) -> bytes:
    if resource.blob is None:
        raise RpcError(INVALID_PARAMS, f"the resource {resource.uri} has neither text nor a blob")
    return _decoded(resource.blob, f"the resource {resource.uri}")


def _image(mime: str, data: str) -> Image:
    if mime not in _PICTURES:
        raise RpcError(INVALID_PARAMS, f"{mime!r} is not one of {', '.join(_PICTURES)}")
    return Image(mime, _decoded(data, "an image"))


def _decoded(data: str, what: str) -> bytes:
    from base64 import b64decode

    try:
        return b64decode(data, validate=True)
    except (NotBase64, ValueError) as error:
        raise RpcError(INVALID_PARAMS, f"the data of {what} is not base64: {error}") from error
