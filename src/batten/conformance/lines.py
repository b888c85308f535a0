"""Lines that all three protocols must refuse."""

from batten.conformance.check import expect
from batten.conformance.subject import Subject

GARBAGE = b"this is not JSON"
NOT_OBJECT = b'"a text"'
INVALID_UTF8 = b'{"type":"\xff\xfe","id":"x"}'
DEEP = b"[" * 100_000
LONG_BYTES = 20 * 1024 * 1024
"""More than most limits. A program may accept or refuse such a line."""


def only_objects(subject: Subject) -> None:
    """`Broken` if standard output holds anything but objects."""
    first = subject.stray[0][:120] if subject.stray else b""
    expect(not subject.stray, f"this line is not a JSON object: {first!r}")
