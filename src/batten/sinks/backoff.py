"""When to try again: twice as long each time, up to an hour, never at the same time for all."""

from hashlib import sha256

FIRST_S = 1.0
LONGEST_S = 3600.0
LONGEST_WAIT_S = 86_400.0
"""However much longer a receiver asks for."""
_SPREAD = 0.2


def wait_s(attempts: int, key: str = "", longest_s: float = LONGEST_S) -> float:
    """The pause after so many failed attempts.

    `key` spreads the pauses of different messages; the same message always gets the same ones.
    """
    if attempts <= 0:
        return 0.0
    plain = min(FIRST_S * 2.0 ** min(attempts - 1, 32), longest_s)
    if not key:
        return plain
    drawn = int.from_bytes(sha256(f"{key} {attempts}".encode()).digest()[:4], "big") / 2**32
    return plain * (1.0 + _SPREAD * (drawn - 0.5))
