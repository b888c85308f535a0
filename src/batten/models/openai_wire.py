"""Shared by both OpenAI APIs: data URLs, reasoning effort, and which models reason."""

import re
from binascii import b2a_base64

from batten.contract.conversation import Image
from batten.models.contract import ModelRequest


def data_url(image: Image) -> str:
    return f"data:{image.mime};base64,{b2a_base64(image.data, newline=False).decode('ascii')}"


def effort(request: ModelRequest) -> str:
    tokens = request.thinking_tokens
    return "low" if tokens < 4096 else "medium" if tokens < 16384 else "high"


def reasons(model: str) -> bool:
    """Whether a model of OpenAI's own reasons: those reject a temperature."""
    if "-chat" in model:
        return False
    return re.match(r"(o[0-9]|codex|gpt-([5-9]|[1-9][0-9]))", model) is not None
