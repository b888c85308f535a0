"""OTLP as protobuf, from its JSON form: messages wait in the store as JSON, whatever is spoken.

Written by hand: the messages that we send are these few tables, and a library for them is larger
than the process.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_Encode = Callable[[int, Any], bytes]
"""Takes the number of a field and its value in JSON."""
_Fields = dict[str, tuple[int, _Encode]]


def _varint(value: int) -> bytes:
    value &= 0xFFFF_FFFF_FFFF_FFFF
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _tagged(number: int, kind: int, data: bytes) -> bytes:
    return _varint(number << 3 | kind) + data


def _sized(number: int, data: bytes) -> bytes:
    return _tagged(number, _BYTES, _varint(len(data)) + data)


def _text(number: int, value: str) -> bytes:
    return _sized(number, value.encode())


def _id(number: int, value: str) -> bytes:
    return _sized(number, bytes.fromhex(value))


def _whole(number: int, value: str | int) -> bytes:
    """An enum, a boolean or an integer; 64-bit integers are texts in JSON."""
    return _tagged(number, _VARINT, _varint(int(value)))


def _fixed(number: int, value: str) -> bytes:
    return _tagged(number, _FIXED64, struct.pack("<q", int(value)))


def _double(number: int, value: float) -> bytes:
    return _tagged(number, _FIXED64, struct.pack("<d", value))


def _fixed_packed(number: int, values: list[str]) -> bytes:
    return _sized(number, struct.pack(f"<{len(values)}Q", *map(int, values)))


def _doubles(number: int, values: list[float]) -> bytes:
    return _sized(number, struct.pack(f"<{len(values)}d", *values))


def _message(fields: _Fields) -> _Encode:
    return lambda number, value: _sized(number, _encoded(value, fields))


def _messages(fields: _Fields) -> _Encode:
    return lambda number, values: b"".join(_sized(number, _encoded(one, fields)) for one in values)


def _encoded(value: Mapping[str, Any], fields: _Fields) -> bytes:
    made: list[bytes] = []
    for name, part in value.items():
        number, encode = fields[name]
        made.append(encode(number, part))
    return b"".join(made)


_VALUE: _Fields = {
    "stringValue": (1, _text),
    "boolValue": (2, _whole),
    "intValue": (3, _whole),
    "doubleValue": (4, _double),
}
_VALUE["arrayValue"] = (5, _message({"values": (1, _messages(_VALUE))}))
_ATTRIBUTES = _messages({"key": (1, _text), "value": (2, _message(_VALUE))})
_RESOURCE = _message({"attributes": (1, _ATTRIBUTES)})
_SCOPE = _message({"name": (1, _text), "version": (2, _text)})
_EVENT: _Fields = {"timeUnixNano": (1, _fixed), "name": (2, _text), "attributes": (3, _ATTRIBUTES)}
_SPAN: _Fields = {
    "traceId": (1, _id),
    "spanId": (2, _id),
    "traceState": (3, _text),
    "parentSpanId": (4, _id),
    "name": (5, _text),
    "kind": (6, _whole),
    "startTimeUnixNano": (7, _fixed),
    "endTimeUnixNano": (8, _fixed),
    "attributes": (9, _ATTRIBUTES),
    "events": (11, _messages(_EVENT)),
    "status": (15, _message({"message": (2, _text), "code": (3, _whole)})),
}
_NUMBER: _Fields = {
    "startTimeUnixNano": (2, _fixed),
    "timeUnixNano": (3, _fixed),
    "asInt": (6, _fixed),
    "attributes": (7, _ATTRIBUTES),
}
_HISTOGRAM: _Fields = {
    "startTimeUnixNano": (2, _fixed),
    "timeUnixNano": (3, _fixed),
    "count": (4, _fixed),
    "sum": (5, _double),
    "bucketCounts": (6, _fixed_packed),
    "explicitBounds": (7, _doubles),
    "attributes": (9, _ATTRIBUTES),
    "min": (11, _double),
    "max": (12, _double),
}


def _points(fields: _Fields) -> _Encode:
    return _message(
        {
            "dataPoints": (1, _messages(fields)),
            "aggregationTemporality": (2, _whole),
            "isMonotonic": (3, _whole),
        }
    )


_METRIC: _Fields = {
    "name": (1, _text),
    "description": (2, _text),
    "unit": (3, _text),
    "sum": (7, _points(_NUMBER)),
    "histogram": (9, _points(_HISTOGRAM)),
}
_SCOPED_SPANS: _Fields = {"scope": (1, _SCOPE), "spans": (2, _messages(_SPAN))}
_SCOPED_METRICS: _Fields = {"scope": (1, _SCOPE), "metrics": (2, _messages(_METRIC))}
_REQUEST: _Fields = {
    "resourceSpans": (
        1,
        _messages({"resource": (1, _RESOURCE), "scopeSpans": (2, _messages(_SCOPED_SPANS))}),
    ),
    "resourceMetrics": (
        1,
        _messages({"resource": (1, _RESOURCE), "scopeMetrics": (2, _messages(_SCOPED_METRICS))}),
    ),
}
"""Of a request of either service."""


def to_protobuf(body: bytes) -> bytes:
    """A request of the traces or the metrics service, given as JSON."""
    return _encoded(msgspec.json.decode(body), _REQUEST)


def read_partial(body: bytes) -> tuple[int, str]:
    """How much a collector did not take, and why, from its answer; nothing for other bytes."""
    try:
        inner = _read(body).get(1, b"")
        told = _read(inner) if isinstance(inner, bytes) else {}
    except (IndexError, ValueError):
        return 0, ""
    count, why = told.get(1, 0), told.get(2, b"")
    return (
        count if isinstance(count, int) else 0,
        why.decode("utf-8", "replace") if isinstance(why, bytes) else "",
    )


def _read(data: bytes) -> dict[int, int | bytes]:
    """The last value of each field. Raises `IndexError` or `ValueError` for other bytes."""
    found: dict[int, int | bytes] = {}
    place = 0
    while place < len(data):
        tag, place = _read_varint(data, place)
        match tag & 7:
            case 0:
                found[tag >> 3], place = _read_varint(data, place)
                continue
            case 1:
                size = 8
            case 2:
                size, place = _read_varint(data, place)
            case 5:
                size = 4
            case _:
                raise ValueError("not a field")
        if place + size > len(data):
            raise ValueError("cut short")
        found[tag >> 3] = data[place : place + size]
        place += size
    return found


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError("not a number")
