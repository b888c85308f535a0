"""Puts the tables of Maestro's messages into `docs/maestro.md`, built from the codec's Structs."""

import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, UNSET, Struct, UnsetType
from msgspec.structs import FieldInfo, fields

from batten.protocols.maestro import hosted, incoming, outgoing
from batten.protocols.maestro.snapshot import RuntimeState

PAGE = Path(__file__).resolve().parents[1] / "docs" / "maestro.md"
BEGIN, END = "<!-- messages: generated -->", "<!-- /messages -->"


def tables() -> str:
    """Both directions as Markdown, one row a message."""
    parts = [
        "### From the client",
        _table(incoming.TYPES.values()),
        "### From the server",
        _table(outgoing.Message.__subclasses__()),
        "### Of a session that many share",
        _table(
            (
                hosted.ConnectAsk,
                hosted.SubscribeAsk,
                hosted.RuntimeSnapshot,
                hosted.HeartbeatSnapshot,
                hosted.ConnectionSnapshot,
                hosted.SubscriptionSnapshot,
                hosted.ConnectionClosed,
            ),
            "value",
        ),
        _table(get_args(hosted.Envelope), "envelope"),
    ]
    return "\n\n".join(parts)


def with_tables(page: str) -> str:
    """The page with its tables replaced."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


def _table(messages: Any, what: str = "message") -> str:
    rows = [_row(message) for message in messages]
    return "\n".join([f"| {what} | fields |", "|---|---|", *rows])


def _row(message: type[Struct]) -> str:
    hints = get_type_hints(message)
    shown = [_field(one, hints[one.name]) for one in fields(message)]
    name = message.__struct_config__.tag or message.__name__
    return f"| `{name}` | {' · '.join(shown) or 'none'} |"


def _field(info: FieldInfo, hint: Any) -> str:
    optional = info.default is not NODEFAULT or info.default_factory is not NODEFAULT
    return f"`{info.encode_name}`{'?' if optional else ''} {_type(hint, info.default)}"


def _type(hint: Any, default: Any = UNSET) -> str:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        members = [one for one in get_args(hint) if one is not UnsetType]
        if default is None:  # the question mark already shows that the field may be absent
            members = [one for one in members if one is not type(None)]
        names = list(dict.fromkeys(_type(one) for one in members))
        return " or ".join(names)
    if origin is Literal:
        return ", ".join(f"`{'true' if one is True else one}`" for one in get_args(hint))
    if origin is tuple:
        return f"list of {_type(get_args(hint)[0])}"
    if origin is dict:
        return "object"
    return _NAMES.get(hint, _struct(hint))


def _struct(hint: Any) -> str:
    if not (isinstance(hint, type) and issubclass(hint, Struct)):
        return "anything"
    hints = get_type_hints(hint)
    inner = ", ".join(_field(one, hints[one.name]) for one in fields(hint))
    tag = hint.__struct_config__.tag
    return f"{{`type` `{tag}`, {inner}}}" if tag else f"{{{inner}}}"


_NAMES: dict[Any, str] = {
    str: "text",
    bool: "true or false",
    int: "number",
    float: "number",
    bytes: "base64",
    type(None): "null",
    incoming.Init: "an `init`",
    outgoing.Message: "a message from the server",
    hosted.RuntimeSnapshot: "a `RuntimeSnapshot`",
    RuntimeState: "the folded state",
}


def main() -> None:
    PAGE.write_text(with_tables(PAGE.read_text()))


if __name__ == "__main__":
    main()
