"""Times, sizes and counts as people write and read them. Stored times are UTC, shown ones local."""

import argparse
import re
from datetime import UTC, datetime, timedelta

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DURATION = re.compile(r"([0-9]{1,9})([smhdw])", re.ASCII)
_SIZE = re.compile(r"([0-9]{1,15})([kmgt]?)(i?b)?", re.ASCII | re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def duration(text: str) -> timedelta:
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: write 90m, 12h, 30d or 2w")
    try:
        return timedelta(seconds=int(found[1]) * _UNITS[found[2]])
    except OverflowError:
        raise argparse.ArgumentTypeError(f"{text!r} is too long ago") from None


def age(text: str) -> str:
    """The time that long ago, as it is stored."""
    return _ago(duration(text), text)


def since(text: str) -> str:
    """A time as it is stored; a day means its beginning."""
    return _instant(text, is_end=False)


def until(text: str) -> str:
    """A time as it is stored; a day means its end."""
    return _instant(text, is_end=True)


def ahead(text: str) -> str:
    """A time to come, as it is stored: so long from now, or a day or time; a day means its end."""
    given = text.strip()
    now = datetime.now(UTC)
    if _DURATION.fullmatch(given):
        try:
            at = stored(now + duration(given))
        except OverflowError:
            raise argparse.ArgumentTypeError(f"{text!r} is too far ahead") from None
    else:
        at = _instant(given, is_end=True, span="90d or 12h for so long from now")
    if at <= stored(now):
        raise argparse.ArgumentTypeError(
            f"{text!r} is over already: write 90d or 12h for so long from now, or a day to come"
        )
    return at


def size(text: str) -> int:
    """A number of bytes; `K`, `M`, `G` and `T` are powers of 1024."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: write 500M, 2G or bytes")
    return int(found[1]) << (10 * _POWERS[found[2].lower()])


def _instant(text: str, *, is_end: bool, span: str = "12h or 7d for that long ago") -> str:
    """`span`: what a duration means, for who writes neither."""
    given = text.strip()
    if _DURATION.fullmatch(given):
        return _ago(duration(given), given)
    today = (
        datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    )
    days = {"today": today, "yesterday": today - timedelta(days=1)}
    is_day = given in days or _DAY.fullmatch(given) is not None
    try:
        at = days[given] if given in days else datetime.fromisoformat(given)
        if is_day and is_end:
            at += timedelta(days=1)
        return stored(at)
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time: write 2026-01-31, 2026-01-31T08:00, today, or {span}"
        ) from None


def _ago(length: timedelta, text: str) -> str:
    try:
        return stored(datetime.now(UTC) - length)
    except OverflowError:
        raise argparse.ArgumentTypeError(f"{text!r} is too long ago") from None


def stored(at: datetime) -> str:
    """A time as the journal writes it; one without a zone is local."""
    utc = at.astimezone(UTC)
    return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03}Z"


def local(instant: str) -> str:
    """A stored time for people, to the minute."""
    try:
        return f"{datetime.fromisoformat(instant).astimezone():%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError):
        return instant[:16]


def shown_size(count: int) -> str:
    """A number of bytes for people."""
    amount = float(count)
    for unit in ("bytes", "KB", "MB", "GB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TB"
