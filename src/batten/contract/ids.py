"""Ids: one 128-bit time-ordered number, spelled as a prefixed ULID or as a UUIDv7.

Every id has UUIDv7's version and variant bits, so that both spellings of the same number are valid:
`run_01J…` for the event protocol, a UUID for protocols that require one. Foreign ids (a provider's
tool call id) are plain strings.
"""

import os
import re
import time
from typing import NewType

RunId = NewType("RunId", str)
TaskId = NewType("TaskId", str)
SessionId = NewType("SessionId", str)
ArtifactId = NewType("ArtifactId", str)
RequestId = NewType("RequestId", str)
CheckpointId = NewType("CheckpointId", str)

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = tuple(a + b for a in _ALPHABET for b in _ALPHABET)
_VALUES = {letter: value for value, letter in enumerate(_ALPHABET)}
_ULID = re.compile(r"[a-z]+_[0-7][0-9A-HJKMNP-TV-Z]{25}")
_HEX = re.compile(r"[0-9a-fA-F]{32}")

_LETTERS = 26
_SHORT = 4
"""Fewer letters are no spelling: a typing error would match."""
_PAYLOAD_BITS = 74
_PAYLOAD_LIMIT = 1 << _PAYLOAD_BITS


class Minter:
    """Mints ids that increase within this minter, also inside one millisecond.

    Not thread-safe: each thread needs its own.
    """

    def __init__(self) -> None:
        self._millis = 0
        self._payload = 0
        self._high = -1
        self._prefix = ""

    def mint(self) -> str:
        """A new id as 26 upper-case Crockford characters, without a prefix."""
        millis = time.time_ns() // 1_000_000
        if millis > self._millis:
            self._millis = millis
            # The top bit stays clear, to leave room for counting inside the millisecond.
            self._payload = int.from_bytes(os.urandom(10), "big") >> 7
        else:
            self._payload += 1
            if self._payload >= _PAYLOAD_LIMIT:
                self._millis += 1
                self._payload = 0
        number = _with_version(self._millis, self._payload)
        # Ids of one millisecond share all but their last characters.
        high = number >> 20
        if high != self._high:
            self._high = high
            self._prefix = _crockford(number)[:22]
        return self._prefix + _PAIRS[number >> 10 & 1023] + _PAIRS[number & 1023]


def _with_version(millis: int, payload: int) -> int:
    return millis << 80 | 0x7 << 76 | (payload >> 62) << 64 | 0b10 << 62 | payload & ((1 << 62) - 1)


def _crockford(number: int) -> str:
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(120, -1, -10)])


_minter = Minter()


def new_run_id() -> RunId:
    return RunId("run_" + _minter.mint())


def new_task_id() -> TaskId:
    return TaskId("task_" + _minter.mint())


def new_session_id() -> SessionId:
    return SessionId("chat_" + _minter.mint())


def new_artifact_id() -> ArtifactId:
    return ArtifactId("art_" + _minter.mint())


def new_request_id() -> RequestId:
    return RequestId("appr_" + _minter.mint())


def new_checkpoint_id() -> CheckpointId:
    return CheckpointId("ckpt_" + _minter.mint())


def new_hook_call_id() -> str:
    return "hook_" + _minter.mint()


def is_ulid(text: str) -> bool:
    """Whether `text` is a prefix, an underscore and a ULID."""
    return _ULID.fullmatch(text) is not None


def session_stream(session_id: SessionId) -> RunId:
    """The stream of a session's own facts: the session's number, spelled as a run."""
    return RunId("run_" + session_id.partition("_")[2])


def spans(text: str, prefix: str) -> list[tuple[str, str]]:
    """The first and last id that begin with a shortened spelling, for each way to read it.

    A ULID may be in either case, with or without the prefix; a UUID with or without hyphens.
    """
    kind, underscore, rest = text.rpartition("_")
    found: list[tuple[str, str]] = []
    letters = rest.upper()
    is_ulid_like = _SHORT <= len(letters) <= _LETTERS and _VALUES.keys() >= {*letters}
    if kind.lower() in ("", prefix) and is_ulid_like:
        padded = letters.ljust(_LETTERS, "0"), letters.ljust(_LETTERS, "Z")
        found.append((f"{prefix}_{padded[0]}", f"{prefix}_{padded[1]}"))
    digits = rest.replace("-", "")
    if not underscore and _SHORT <= len(digits) <= 32 and _HEX.fullmatch(digits.ljust(32, "0")):
        numbers = (int(digits.ljust(32, fill), 16) for fill in "0f")
        low, high = (f"{prefix}_{_crockford(number)}" for number in numbers)
        found.append((low, high))
    return found


def to_uuid(prefixed: str) -> str:
    """The UUID spelling of a prefixed ULID; `ValueError` if it is not one."""
    if not is_ulid(prefixed):
        raise ValueError(f"not a prefixed ULID: {prefixed!r}")
    number = 0
    for letter in prefixed.rpartition("_")[2]:
        number = number << 5 | _VALUES[letter]
    digits = f"{number:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def from_uuid(uuid: str, prefix: str) -> str:
    """The prefixed ULID spelling of a UUID; `ValueError` if it is not one."""
    digits = uuid.replace("-", "")
    if _HEX.fullmatch(digits) is None:
        raise ValueError(f"not a UUID: {uuid!r}")
    return f"{prefix}_{_crockford(int(digits, 16))}"
