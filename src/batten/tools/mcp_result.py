"""Turns an MCP server's result into text for the model, and other content into artifacts."""

import base64
import binascii
from typing import Any

import mcp_types
import msgspec

from batten.contract.conversation import Image
from batten.redact.redactor import redacted_bytes
from batten.tools.contract import ToolContext, ToolOutput

_SHOWN_IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))


async def told(
    result: mcp_types.CallToolResult, server: str, tool: str, context: ToolContext
) -> ToolOutput:
    """Texts in order, images beside them, other content as a reference to its artifact."""
    lines: list[str] = []
    images: list[Image] = []
    artifact_id: str | None = None
    metadata = {"mcp_server": server, "tool_name": tool, "is_error": result.is_error}
    for block in result.content:
        match block:
            case mcp_types.TextContent():
                lines.append(block.text)
            case mcp_types.ImageContent() if block.mime_type in _SHOWN_IMAGES:
                data = _bytes(block.data)
                images.append(Image(block.mime_type, data))
                lines.append(f"[{block.mime_type}, {len(data)} bytes]")
            case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents() as resource):
                lines.append(resource.text)
            case mcp_types.ResourceLink():
                lines.append(f"[resource {block.name}: {block.uri}]")
            case _:
                mime, data = _body(block, context)
                kept = await context.artifact(
                    "tool_result_blob", data, mime_type=mime, summary=tool, metadata=metadata
                )
                artifact_id = artifact_id or kept
                lines.append(f"[{mime}, {len(data)} bytes: artifact {kept}]")
    if not lines and result.structured_content is not None:
        lines.append(msgspec.json.encode(result.structured_content).decode())
    text = context.redact("\n".join(lines))
    return ToolOutput(
        text=text or ("Error: no reason given" if result.is_error else "(no output)"),
        artifact_id=artifact_id,
        images=tuple(images),
        error_kind="tool_error" if result.is_error else "",
        mcp_result="tool_error" if result.is_error else "dispatched",
    )


def _body(block: Any, context: ToolContext) -> tuple[str, bytes]:
    """The MIME type and bytes of a block that is stored, not shown."""
    match block:
        case mcp_types.ImageContent() | mcp_types.AudioContent():
            return block.mime_type, _bytes(block.data)
        case mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents() as resource):
            data = redacted_bytes(_bytes(resource.blob), context.redact)
            return resource.mime_type or "application/octet-stream", data
        case _:
            text = block.model_dump_json(by_alias=True)
            return "application/json", context.redact(text).encode()


def _bytes(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error:
        return encoded.encode()
