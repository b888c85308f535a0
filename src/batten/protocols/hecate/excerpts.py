"""Arguments of calls, shown whole or visibly cut."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from batten.contract.cutting import cut


def shown_input(arguments: dict[str, Any] | UnsetType | None, most: int) -> dict[str, Any]:
    """Fields that show arguments whole, or cut visibly."""
    if arguments is None or arguments is UNSET:
        return {}
    text = msgspec.json.encode(arguments)
    if len(text) <= most:
        return {"input": arguments}
    return {"input_excerpt": cut(text.decode(), most)}
