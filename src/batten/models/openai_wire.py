"""Shared by the OpenAI APIs: data URLs, tools, reasoning effort, and which models reason."""

import re
from binascii import b2a_base64
from typing import Any

import msgspec

from batten.contract.conversation import Image, ToolCall
from batten.models.contract import ModelRequest, ToolSpec


def data_url(image: Image) -> str:
    return f"data:{image.mime};base64,{b2a_base64(image.data, newline=False).decode('ascii')}"


def arguments(call: ToolCall) -> str:
    """As JSON. Unreadable ones are left out: many servers parse those of earlier calls, and refuse
    the request. The model sees them in the call's result.
    """
    return msgspec.json.encode({} if call.raw is not None else call.input).decode()


def function(tool: ToolSpec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def functions(request: ModelRequest) -> list[dict[str, Any]]:
    """The tools of a request, as Chat Completions and Ollama take them."""
    return [{"type": "function", "function": function(tool)} for tool in request.tools]


def effort(request: ModelRequest) -> str:
    tokens = request.thinking_tokens
    return "low" if tokens < 4096 else "medium" if tokens < 16384 else "high"


def reasons(model: str) -> bool:
    """Whether a model of OpenAI's own reasons: those reject a temperature."""
    if "-chat" in model:
        return False
    return re.match(r"(o[0-9]|codex|gpt-([5-9]|[1-9][0-9]))", model) is not None
