"""The `read_file` tool: a text file, whole or by page, or a picture."""

from collections.abc import Generator
from contextlib import contextmanager
from io import BytesIO
from typing import Any, BinaryIO

from batten.contract.conversation import Image
from batten.contract.errors import NotFound
from batten.contract.facts import ToolFileReadCompleted
from batten.contract.facts.tool import ToolKind
from batten.models.contract import ToolSpec
from batten.redact.redactor import Redactor
from batten.redact.stream import ByteRedactor
from batten.tools.contract import Effect, ToolContext, ToolOutput, object_schema
from batten.tools.lent import Documents
from batten.tools.paths import REPORTED_ERRORS, FileTool, failed, unhurried
from batten.workspace import files
from batten.workspace.root import ResolvedPath, Root

MAX_PAGE_BYTES = 48 * 1024
"""Smaller than the limit on results, so that a page arrives in one piece."""
MAX_IMAGE_BYTES = 5 * 1024 * 1024

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


class ReadFile(FileTool):
    kind: ToolKind = "file_read"
    effect: Effect = "read"
    spec = ToolSpec(
        name="read_file",
        description=(
            "Read a text file in the workspace, or look at a picture (PNG, JPEG, GIF, WebP). "
            "Long files come in pages: read on with `offset`."
        ),
        parameters=object_schema(
            ["file_path"],
            file_path={"type": "string"},
            offset={"type": "integer", "description": "First line, counted from 1."},
            limit={
                "type": "integer",
                "description": f"How many lines; at most {files.MAX_LINES}.",
            },
        ),
    )

    def __init__(self, root: Root, redactor: Redactor, lent: Documents | None = None) -> None:
        super().__init__(root, lent)
        self._redactor = redactor

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        path: str = arguments["file_path"]
        try:
            place = self._root.resolve(path)
            theirs = await self._held([place], context)
            mime = None if theirs else _image_type(place)
            if mime is not None:
                return _picture(place, mime, context)
            text = theirs[place.path].data if theirs else None
            output, page = await unhurried([place], lambda: self._text(place, arguments, text))
        except NotFound as error:
            return failed(error, f"Could not read file: {path}")
        except REPORTED_ERRORS as error:
            return failed(error)
        snippet_id = await _keep(context, place, page, output)
        context.record(
            ToolFileReadCompleted(
                tool_call_id=context.call_id,
                tool_name=context.tool_name,
                path=place.shown,
                size_bytes=page.size_bytes,
                lines=page.total_lines,
                snippet_artifact_id=snippet_id,
            )
        )
        return output

    def _text(
        self, place: ResolvedPath, arguments: dict[str, Any], text: bytes | None
    ) -> tuple[ToolOutput, files.TextPage]:
        """A page of the file, or of the client's text of it."""
        offset, limit = arguments.get("offset", 1), arguments.get("limit", files.MAX_LINES)
        # From the beginning of the file: a page may start in the middle of a secret.
        clean = ByteRedactor(self._redactor, keep_lines=True).over
        with _opened(place, text) as (file, size):
            page = files.page_of(
                file,
                size,
                place,
                offset=offset,
                limit=limit,
                max_bytes=MAX_PAGE_BYTES,
                clean=clean,
            )
        if page.start_line <= 1 and not page.truncated:
            # The whole file: exactly as stored, line endings included.
            data = files.read(place).data if text is None else text
            whole = self._redactor.text(data.decode("utf-8", "replace"))
            return ToolOutput(text=whole, summary=_lines(page.total_lines)), page
        where = f"lines {page.start_line}-{page.end_line} of {page.total_lines}"
        if page.end_line < page.total_lines:
            note = f"\n[{where}; read on with offset {page.end_line + 1}]"
        else:
            note = f"\n[{where}{'; the last line was cut' if page.truncated else ''}]"
        return ToolOutput(text=page.content + note, summary=where), page


@contextmanager
def _opened(place: ResolvedPath, text: bytes | None) -> Generator[tuple[BinaryIO, int], None, None]:
    if text is not None:
        yield BytesIO(text), len(text)
        return
    with files.open_file(place) as (file, status):
        yield file, status.st_size


async def _keep(
    context: ToolContext, place: ResolvedPath, page: files.TextPage, output: ToolOutput
) -> str:
    """Store the text the model received as an artifact, with the file's revision."""
    return await context.artifact(
        "file_snapshot",
        output.text.encode(),
        mime_type="text/plain; charset=utf-8",
        summary=f"{place.shown}, {output.summary}",
        metadata={
            "path": place.shown,
            "revision": page.revision,
            "lines": page.total_lines,
            "start_line": page.start_line,
            "end_line": page.end_line,
            "snapshot_reason": "tool_read",
        },
    )


def _lines(number: int) -> str:
    return f"{number} line" if number == 1 else f"{number} lines"


def _image_type(place: ResolvedPath) -> str | None:
    with files.open_file(place) as (file, _):
        return image_type(file.read(16))


def image_type(head: bytes) -> str | None:
    """The type of an image that models accept, by its first bytes; None for anything else."""
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for magic, mime in _MAGIC if head.startswith(magic)), None)


def _picture(place: ResolvedPath, mime: str, context: ToolContext) -> ToolOutput:
    data = files.read(place, max_bytes=MAX_IMAGE_BYTES).data
    context.record(
        ToolFileReadCompleted(
            tool_call_id=context.call_id,
            tool_name=context.tool_name,
            path=place.shown,
            size_bytes=len(data),
            lines=0,
        )
    )
    return ToolOutput(
        text=f"Image {place.shown} ({mime}, {len(data)} bytes)", images=(Image(mime, data),)
    )
