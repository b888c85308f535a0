"""What a descriptor can show: colours, a moving status line, how many columns."""

import os
from collections.abc import Mapping
from typing import Literal

Color = Literal["auto", "always", "never"]

_USUAL_COLUMNS = 80


def is_smart(descriptor: int, environ: Mapping[str, str]) -> bool:
    """Whether it is a terminal that obeys escape sequences."""
    return os.isatty(descriptor) and environ.get("TERM", "") not in ("", "dumb")


def has_color(choice: Color, descriptor: int, environ: Mapping[str, str]) -> bool:
    """Whether to write colours there. A flag goes before `NO_COLOR`."""
    if choice == "auto":
        return is_smart(descriptor, environ) and not environ.get("NO_COLOR")
    return choice == "always"


def columns(descriptor: int) -> int:
    """The width of a terminal now; it changes when people resize the window."""
    try:
        return os.get_terminal_size(descriptor).columns or _USUAL_COLUMNS
    except OSError:
        return _USUAL_COLUMNS


def is_same_terminal(one: int, other: int) -> bool:
    """Whether two descriptors are the same terminal."""
    if not (os.isatty(one) and os.isatty(other)):
        return False
    return os.fstat(one).st_rdev == os.fstat(other).st_rdev
