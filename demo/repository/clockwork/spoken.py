"""Durations in words."""

UNITS = (("day", 86400), ("hour", 360), ("minute", 60), ("second", 1))


def spoken(seconds):
    """3723 seconds are "1 hour, 2 minutes and 3 seconds"."""
    parts = []
    for name, size in UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(plural(count, name))
    return listed(parts)


def plural(count, name):
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def listed(parts):
    if len(parts) < 2:
        return "".join(parts)
    return ", ".join(parts[:-1]) + " and " + parts[-1]
