"""Adapts requests to what models take: an image that they do not is replaced by a note in words."""

from collections.abc import Callable
from operator import is_

from msgspec.structs import replace

from batten.contract.conversation import Block, Image, Message, Text, ToolResult
from batten.models.contract import Model, ModelRequest
from batten.models.vision import takes_images

_LEFT_OUT = "[an image was left out: this model takes no images]"
_NO_PICTURE = "[an image was left out: it is no PNG, JPEG, GIF or WebP]"

_Shown = Callable[[Image], Image | str]
"""How to show an image: as one, or in words."""


def lacks_images(request: ModelRequest, model: Model) -> bool:
    """Whether the request shows an image to a model that takes none."""
    return not takes_images(model.provider, model.name) and any(map(_shows_image, request.messages))


def in_words(request: ModelRequest) -> ModelRequest:
    """The request with a note in place of each image."""
    return _showing(request, lambda _: _LEFT_OUT)


def only_pictures(request: ModelRequest) -> ModelRequest:
    """The request with images under their true type, and a note for what is no picture at all.

    A provider refuses a request with such an image, and so each later one of the session.
    """
    return _showing(request, _as_it_is)


def _as_it_is(image: Image) -> Image | str:
    kind = image.true_mime
    if kind is None:
        return _NO_PICTURE
    return image if kind == image.mime else replace(image, mime=kind)


def _shows_image(message: Message) -> bool:
    return any(
        isinstance(block, Image) or (isinstance(block, ToolResult) and bool(block.images))
        for block in message.blocks
    )


def _showing(request: ModelRequest, shown: _Shown) -> ModelRequest:
    """What does not change stays the same object: dialects know it by that, encoded already."""
    messages = tuple(
        _message(message, shown) if _shows_image(message) else message
        for message in request.messages
    )
    return replace(request, messages=messages)


def _message(message: Message, shown: _Shown) -> Message:
    blocks = tuple(_block(block, shown) for block in message.blocks)
    same = all(map(is_, blocks, message.blocks))
    return message if same else replace(message, blocks=blocks)


def _block(block: Block, shown: _Shown) -> Block:
    if isinstance(block, Image):
        found = shown(block)
        return Text(found) if isinstance(found, str) else found
    if isinstance(block, ToolResult) and block.images:
        all_ = [shown(image) for image in block.images]
        if all(map(is_, all_, block.images)):
            return block
        notes = [one for one in all_ if isinstance(one, str)]
        images = tuple(one for one in all_ if isinstance(one, Image))
        return replace(block, output="\n".join((block.output, *notes)), images=images)
    return block
