"""Adapts requests to models that take no images: each is replaced by a note in words."""

from msgspec.structs import replace

from batten.contract.conversation import Block, Image, Message, Text, ToolResult
from batten.models.contract import Model, ModelRequest
from batten.models.vision import takes_images

_LEFT_OUT = "[an image was left out: this model takes no images]"


def lacks_images(request: ModelRequest, model: Model) -> bool:
    """Whether the request shows an image to a model that takes none."""
    return not takes_images(model.provider, model.name) and any(map(_shows_image, request.messages))


def in_words(request: ModelRequest) -> ModelRequest:
    """The request with a note in place of each image."""
    return replace(request, messages=tuple(map(_message_in_words, request.messages)))


def _shows_image(message: Message) -> bool:
    return any(
        isinstance(block, Image) or (isinstance(block, ToolResult) and bool(block.images))
        for block in message.blocks
    )


def _message_in_words(message: Message) -> Message:
    return replace(message, blocks=tuple(map(_block_in_words, message.blocks)))


def _block_in_words(block: Block) -> Block:
    if isinstance(block, Image):
        return Text(_LEFT_OUT)
    if isinstance(block, ToolResult) and block.images:
        return replace(block, output=f"{block.output}\n{_LEFT_OUT}", images=())
    return block
