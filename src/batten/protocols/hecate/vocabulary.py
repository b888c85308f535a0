"""Words and bounds that the types of this protocol share."""

from typing import Annotated, Literal

from msgspec import Meta

from batten.contract.outcomes import RunStatus

END = r"$(?!\n)"
"""The end of a pattern: in Python `$` alone also accepts a line feed there."""
_ULID = f"[0-9A-HJKMNP-TV-Z]{{26}}{END}"


def _id(prefix: str, thing: str) -> Meta:
    """The ids of a thing; `expected` tells a client that sent another text."""
    words = f"the id of {thing}: {prefix} and 26 letters and digits"
    return Meta(pattern=f"^{prefix}{_ULID}", extra={"expected": words})


TaskId = Annotated[str, _id("task_", "a task")]
RunId = Annotated[str, _id("run_", "a run")]
ArtifactId = Annotated[str, _id("art_", "an artifact")]

TaskStatus = RunStatus
Priority = Literal["low", "normal", "high", "urgent"]

LARGEST = 2**63 - 1
"""The largest number that the store holds."""
MAX_TEXT = 1 << 20
"""Characters of a prompt, a file's content or any other long text in a request."""

LARGEST_CURSOR = 2**64 - 1
"""A sequence is an unsigned number of 64 bits on the wire."""

# msgspec takes no bound of more than 63 bits; `cursors.start_of` checks it.
Cursor = Annotated[int, Meta(ge=-1, extra_json_schema={"maximum": LARGEST_CURSOR})]
Amount = Annotated[int, Meta(ge=0, le=LARGEST)]
Limit = Annotated[int, Meta(ge=1, le=LARGEST)]
Short = Annotated[str, Meta(max_length=200)]
Line = Annotated[str, Meta(max_length=4096)]
Note = Annotated[str, Meta(max_length=16_384)]
Long = Annotated[str, Meta(max_length=MAX_TEXT)]

EVENT_PAGE = 500
"""Default and largest page of one run's events."""
FEED_PAGE, MAX_FEED_PAGE = 200, 500
LIST_PAGE, MAX_LIST_PAGE = 50, 200
MAX_MCP_SERVERS = 16


def page_size(limit: object, usual: int, most: int) -> int:
    """How many items a page holds; larger limits count as the largest, an absent one as usual."""
    if not isinstance(limit, int):
        return usual
    return min(limit, most) if limit > 0 else most
