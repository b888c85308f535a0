"""Reads JSON that says what a type expects in other words: null for a member that is left out, and
a whole number with a fraction of zero.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_REFUSED = re.compile(
    r"(?:Expected `int(?: \| null)?`, got `float`|got `null`)"
    r" - at `\$((?:\.[a-zA-Z]\w*|\[[0-9]+\])*\.[a-zA-Z]\w*)`$",
    re.ASCII,
)
"""Refusals of a member in an object whose members have names of ours."""
_MOST_MENDED = 100


def read_leniently(data: bytes, decode: Callable[[bytes], T]) -> T:
    """What `decode` makes of a body.

    A member that is null counts as left out where null means nothing else and the rest can do
    without it; 2.0 is the integer 2, as in JSON Schema. Raises what `decode` raises otherwise.
    """
    try:
        return decode(data)
    except msgspec.ValidationError as error:
        refusal = error
    body = msgspec.json.decode(data)
    for _ in range(_MOST_MENDED):
        mended = _mend(body, str(refusal))
        if not mended:
            break
        try:
            return decode(msgspec.json.encode(body))
        except msgspec.ValidationError as error:
            if f"missing required field `{mended}`" in str(error):
                break
            refusal = error
    raise refusal


def _mend(body: Any, message: str) -> str:
    """Spell the member that a message refuses otherwise; its name, empty if that cannot be."""
    found = _REFUSED.search(message)
    if found is None:
        return ""
    path: list[str] = re.findall(r"\w+", found[1])
    last = path.pop()
    for name in path:
        body = body[int(name) if isinstance(body, list) else name]
    value = body[last]
    if value is None:
        del body[last]
    elif isinstance(value, float) and value.is_integer():
        body[last] = int(value)
    else:
        return ""
    return last
