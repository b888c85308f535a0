"""Lines that no protocol takes, the same for all three."""

from batten.conformance.check import expect
from batten.conformance.subject import Subject

GARBAGE = b"this is not JSON"
NOT_OBJECT = b'"a text"'
INVALID_UTF8 = b'{"type":"\xff\xfe","id":"x"}'
DEEP = b"[" * 100_000
LONG_BYTES = 20 * 1024 * 1024
"""More than most limits. A program may take such a line, or refuse it."""


def only_objects(subject: Subject) -> None:
    """`Broken` if anything else than objects was on standard output."""
    first = subject.stray[0][:120] if subject.stray else b""
    expect(not subject.stray, f"this line is no JSON object: {first!r}")
