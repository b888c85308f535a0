"""Which models take no images. A model that is not listed is asked; its provider may refuse."""

import re

from batten.models.pricing import listed_name

_TEXT_ONLY: dict[str, str] = {
    "openai": r"gpt-3\.5.*|gpt-4(-0314|-0613|-32k.*)?|o1-(mini|preview).*|o3-mini.*|gpt-oss.*",
    "deepseek": r"deepseek-(chat|reasoner|coder|v\d|r\d).*",
    "x-ai": r"grok-(2|2-1212|3.*|code.*|beta)",
    "groq": r"(llama-?3|llama3|mixtral|gemma2|deepseek|qwen|gpt-oss|kimi)(?!.*vision).*",
    "anthropic": r"claude-(2|instant).*",
}
"""By the provider's name in price files: a pattern of its models that read text alone."""


def takes_images(provider: str, model: str) -> bool:
    """Whether images may be sent to a model; routed models are judged by their vendor's name."""
    vendor, slash, rest = model.partition("/")
    if slash and vendor in _TEXT_ONLY:
        provider, model = vendor, rest
    pattern = _TEXT_ONLY.get(listed_name(provider))
    name = model.rpartition("/")[2].lower()
    return pattern is None or re.fullmatch(pattern, name) is None
