"""The `read_file` tool: a file's text, whole or a page of it, or a picture."""

from typing import Any

from batten.contract.conversation import Image
from batten.contract.errors import NotFound
from batten.contract.facts import ToolFileReadCompleted
from batten.contract.facts.tool import ToolKind
from batten.models.contract import ToolSpec
from batten.tools.contract import Effect, ToolContext, ToolOutput
from batten.tools.places import TOLD, failed, subject_of, unhurried
from batten.workspace import files
from batten.workspace.root import Place, Root

MAX_PAGE_BYTES = 48 * 1024
"""A page stays below what is told of any result, so that it arrives in one piece."""
MAX_IMAGE_BYTES = 5 * 1024 * 1024

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


class ReadFile:
    kind: ToolKind = "file_read"
    effect: Effect = "read"
    spec = ToolSpec(
        name="read_file",
        description=(
            "Read a text file in the workspace, or look at a picture (PNG, JPEG, GIF, WebP). "
            "Long files come in pages: read on with `offset`."
        ),
        parameters={
            "type": "object",
            "properties": {
                "file_path": {"type": "string"},
                "offset": {"type": "integer", "description": "First line, counted from 1."},
                "limit": {
                    "type": "integer",
                    "description": f"How many lines; at most {files.MAX_LINES}.",
                },
            },
            "required": ["file_path"],
        },
    )

    def __init__(self, root: Root) -> None:
        self._root = root

    def subject(self, arguments: dict[str, Any]) -> str:
        return subject_of(self._root, arguments["file_path"])

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        path: str = arguments["file_path"]
        try:
            place = self._root.resolve(path)
            mime = _image_type(place)
            if mime is not None:
                output, size, lines = _picture(place, mime)
            else:
                output, size, lines = await unhurried([place], lambda: _text(place, arguments))
        except NotFound as error:
            return failed(error, f"Could not read file: {path}")
        except TOLD as error:
            return failed(error)
        context.record(
            ToolFileReadCompleted(
                tool_call_id=context.call_id, path=place.shown, size_bytes=size, lines=lines
            )
        )
        return output


def _image_type(place: Place) -> str | None:
    with files.open_file(place) as (file, _):
        head = file.read(16)
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for magic, mime in _MAGIC if head.startswith(magic)), None)


def _picture(place: Place, mime: str) -> tuple[ToolOutput, int, int]:
    data = files.read(place, max_bytes=MAX_IMAGE_BYTES).data
    output = ToolOutput(
        text=f"Image {place.shown} ({mime}, {len(data)} bytes)", images=(Image(mime, data),)
    )
    return output, len(data), 0


def _text(place: Place, arguments: dict[str, Any]) -> tuple[ToolOutput, int, int]:
    offset, limit = arguments.get("offset", 1), arguments.get("limit", files.MAX_LINES)
    page = files.read_text(
        place, offset=offset, limit=limit, max_bytes=None, max_page_bytes=MAX_PAGE_BYTES
    )
    summary = f"{page.total_lines} lines"
    if page.start_line <= 1 and not page.truncated:
        # All of it: exactly as it stands, line ends included.
        whole = files.read(place).data.decode("utf-8", "replace")
        return ToolOutput(text=whole, summary=summary), page.size_bytes, page.total_lines
    where = f"lines {page.start_line}-{page.end_line} of {page.total_lines}"
    if page.end_line < page.total_lines:
        note = f"\n[{where}; read on with offset {page.end_line + 1}]"
    else:
        note = f"\n[{where}{'; the last line was cut' if page.truncated else ''}]"
    return ToolOutput(text=page.content + note, summary=where), page.size_bytes, page.total_lines
