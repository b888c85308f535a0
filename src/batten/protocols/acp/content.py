"""What is said and shown: text, pictures, links and files, also beside a tool call."""

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
    """Something that is named and not brought along."""

    uri: str
    name: str
    mime_type: str | None = None
    size: int | None = None
    title: str | None = None
    description: str | None = None


class Resource(Shape, frozen=True):
    """Content of its own, as text or, in base64, as bytes."""

    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None


class EmbeddedResource(Shape, frozen=True, tag_field="type", tag="resource"):
    resource: Resource


Block = TextBlock | ImageBlock | AudioBlock | ResourceLink | EmbeddedResource


class Shown(Shape, frozen=True, tag_field="type", tag="content"):
    """A block beside a tool call."""

    content: Block


class Diff(Shape, frozen=True, tag_field="type", tag="diff"):
    """A file before and after a change, both whole."""

    path: str
    """Absolute."""
    new_text: str
    old_text: str | None = None
    """None: there was no file."""


class Terminal(Shape, frozen=True, tag_field="type", tag="terminal"):
    """A terminal of the client's, which shows it itself."""

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
