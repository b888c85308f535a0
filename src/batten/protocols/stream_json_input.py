"""Print mode's input: parses a line of NDJSON to a command.

A frame of another protocol must not start a run with an empty prompt, so every unknown field is an
error.
"""

from typing import Any, cast

from batten.contract.commands import Command, Interrupt, Prompt
from batten.contract.errors import CallerError
from batten.protocols.json_line import decode

_LONGEST = 40
_EXAMPLE = '{"type":"user","content":"…"}'
_INTERRUPT = '{"type":"control","subtype":"interrupt"}'


class InputError(CallerError):
    """A line that is no frame of this protocol; exit code 64."""

    code = "usage"


def read_line(line: bytes, number: int) -> Command | None:
    """The command of one line; None for an empty one. `InputError` names the fault."""
    if not line.strip():
        return None
    try:
        frame = decode(line)
    except RecursionError as error:
        raise _wrong(number, "is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise _wrong(number, f"is not UTF-8 text: {error.reason}") from error
    except ValueError as error:
        raise _wrong(number, f"is not JSON: {error}") from error
    if not isinstance(frame, dict):
        raise _wrong(number, f"is not an object; write {_EXAMPLE}")
    fields = cast("dict[str, Any]", frame)
    match fields.get("type"):
        case "user":
            _only(fields, {"type", "content"}, number, _EXAMPLE)
            text = _text(fields, number)
            if not text.strip():
                raise _wrong(number, "has a message without text")
            return Prompt(text=text)
        case "control":
            _only(fields, {"type", "subtype"}, number, _INTERRUPT)
            if fields.get("subtype") != "interrupt":
                raise _wrong(number, 'has no known subtype; the one there is is "interrupt"')
            return Interrupt()
        case other:
            # A long value is no intended type, and may be anything.
            shown = f" {other!r}" if isinstance(other, str) and len(other) <= _LONGEST else ""
            kind = f"has the unknown type{shown}" if "type" in fields else "has no type"
            raise _wrong(number, f'{kind}; types are "user" and "control"')


def _only(fields: dict[str, Any], known: set[str], number: int, example: str) -> None:
    extra = sorted(fields.keys() - known)
    if extra:
        raise _wrong(number, f"has the unknown field {extra[0][:_LONGEST]!r}; write {example}")


def _text(fields: dict[str, Any], number: int) -> str:
    """The text of the content: a string, or text blocks joined."""
    content = fields.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _wrong(number, "needs content: a text, or a list of text blocks")
    return "".join(_block(block, number) for block in cast("list[object]", content))


def _block(block: object, number: int) -> str:
    if isinstance(block, dict):
        fields = cast("dict[str, Any]", block)
        if fields.get("type") == "text" and isinstance(fields.get("text"), str):
            _only(fields, {"type", "text"}, number, _EXAMPLE)
            return str(fields["text"])
    raise _wrong(number, 'has a block that is not {"type":"text","text":"…"}')


def _wrong(number: int, what: str) -> InputError:
    return InputError(f"line {number} of standard input {what}")
