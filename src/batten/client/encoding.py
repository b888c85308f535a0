"""Encodes messages to a worker, messages to bytes. Does no I/O."""

import msgspec

from batten.contract.errors import CallerError
from batten.protocols import json_line
from batten.protocols.maestro.incoming import Incoming, Prompt

LONGEST_LINE = 64 * 1024 * 1024
"""Bytes; workers refuse longer lines."""
LONGEST_PROMPT = 16 * 1024 * 1024
"""Characters; workers refuse longer prompts."""


def encoded(message: Incoming) -> bytes:
    """A message as a line.

    Decodes it as the worker will: an invalid argument raises `CallerError` at once, instead of
    leaving the caller to wait for an answer that never comes.
    """
    kind = message.__struct_config__.tag
    try:
        line = json_line.encode(message)
        if len(line) > LONGEST_LINE:
            raise CallerError(f"{kind}: it has {len(line)} bytes, at most {LONGEST_LINE} are taken")
        body = json_line.read(line)
        if isinstance(body, json_line.Malformed):
            raise CallerError(f"{kind}: {body.problem}")
        msgspec.convert(body, type(message))
    except (TypeError, ValueError, RecursionError) as error:
        raise CallerError(f"{kind}: {error}") from error
    if isinstance(message, Prompt) and len(message.content) > LONGEST_PROMPT:
        length = len(message.content)
        raise CallerError(f"prompt: it has {length} characters, at most {LONGEST_PROMPT} are taken")
    return line
