"""Values of JSON whose shape nobody promised."""

from collections.abc import Iterable
from typing import Any, cast

_LARGEST = 10**15


def object_of(value: Any) -> dict[str, Any] | None:
    """The value, if it is an object."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def list_of(value: Any) -> list[Any] | None:
    """The value, if it is a list."""
    return list(cast(Iterable[Any], value)) if isinstance(value, list) else None


def texts_of(value: Any) -> list[str]:
    """The entries of a list as texts; none if it is not one."""
    return [str(one) for one in list_of(value) or ()]


def number_of(value: Any) -> int | float | None:
    """The value, if it is a number that can be counted with: true is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -_LARGEST < value < _LARGEST else None
