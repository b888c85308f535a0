"""Times, durations, token counts and money as people read them."""


def local_time(instant: str) -> str:
    """The time of day of an envelope's instant, where the reader is."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(instant).astimezone().strftime("%H:%M:%S")
    except (ValueError, OverflowError):  # another program wrote it
        return instant[11:19]


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return elapsed(seconds)


def elapsed(seconds: float) -> str:
    """A duration that grows while it is looked at: whole seconds."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02}m"


def count(number: int) -> str:
    """A count in at most four digits and a letter."""
    if number < 1000:
        return str(number)
    if number < 9_950:
        return f"{number / 1000:.1f}k"
    if number < 999_500:
        return f"{number / 1000:.0f}k"
    return f"{number / 1e6:.1f}M"


def dollars(micros: int, unknown: object = False) -> str:
    text = f"${micros / 1e6:.4f}"
    return f"{text} or more (a price is unknown)" if unknown is True else text


def counted(number: int, noun: str) -> str:
    """`1 run`, `2 runs`, `2 bodies`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("y") else f"{number} {noun}s"
