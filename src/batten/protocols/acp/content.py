"""Content blocks: text, images, links and files, also as the content of a tool call."""

from typing import Literal

from batten.protocols.acp.shape import Shape


class TextBlock(Shape, frozen=True, tag_field="type", tag="text"):
    text: str


class ImageBlock(Shape, frozen=True, tag_field="type", tag="image"):
    data: str
    """Base64."""
    mime_type: str
    uri: str | None = None


class AudioBlock(Shape, frozen=True, tag_field="type", tag="audio"):
    data: str
    mime_type: str


class ResourceLink(Shape, frozen=True, tag_field="type", tag="resource_link"):
    """A reference to a resource, without its content."""

    uri: str
    name: str
    mime_type: str | None = None
    size: int | None = None
    title: str | None = None
    description: str | None = None


class Resource(Shape, frozen=True):
    """An embedded resource: text, or bytes in base64."""

    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None


class EmbeddedResource(Shape, frozen=True, tag_field="type", tag="resource"):
    resource: Resource


Block = TextBlock | ImageBlock | AudioBlock | ResourceLink | EmbeddedResource


class Shown(Shape, frozen=True, tag_field="type", tag="content"):
    """A content block of a tool call."""

    content: Block


class Diff(Shape, frozen=True, tag_field="type", tag="diff"):
    """A file before and after a change, both complete."""

    path: str
    """Absolute."""
    new_text: str
    old_text: str | None = None
    """None: the file did not exist."""


class Terminal(Shape, frozen=True, tag_field="type", tag="terminal"):
    """A terminal of the client, which displays it."""

    terminal_id: str


ToolContent = Shown | Diff | Terminal


class Location(Shape, frozen=True):
    path: str
    line: int | None = None


ToolKind = Literal[
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"
]
ToolStatus = Literal["pending", "in_progress", "completed", "failed"]


def shown(text: str) -> Shown:
    return Shown(content=TextBlock(text=text))
