"""Pages of lists that are made whole: the cursor is the id of the last item of a page."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from batten.contract.errors import CallerError
from batten.protocols.hecate.runs import PageQuery
from batten.protocols.hecate.vocabulary import LIST_PAGE, MAX_LIST_PAGE, page_size

T = TypeVar("T")


def page_of(items: Sequence[T], query: PageQuery, id_of: Callable[[T], str]) -> tuple[list[T], str]:
    """The page that a query asks for, and the cursor of the next one; empty on the last page."""
    first = 0
    if isinstance(query.cursor, str):
        place = next((at for at, item in enumerate(items) if id_of(item) == query.cursor), None)
        if place is None:
            raise CallerError(
                f"the cursor {query.cursor[:80]!r} is not of this list: pass `next_cursor` of the"
                " page before, or leave it out"
            )
        first = place + 1
    size = page_size(query.limit, LIST_PAGE, MAX_LIST_PAGE)
    page = list(items[first : first + size])
    return page, id_of(page[-1]) if first + size < len(items) else ""
