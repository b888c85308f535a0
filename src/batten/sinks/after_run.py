"""Tells the sinks of a home at the end of a process that had runs, within a bound."""

from batten.contract.envelope import decode, timestamp
from batten.contract.errors import BattenError
from batten.journal.contract import Journal
from batten.sinks.configuration import configured_sinks, read_sinks
from batten.sinks.running import tell
from batten.sinks.store import SinkStore
from batten.wiring.opener import SessionOpener


async def tell_sinks(opener: SessionOpener, *, at_most_s: float | None = None) -> str:
    """Tell what is stored, as far as it goes in the time; the next process tells the rest.

    A sink that a service reads for is left to it. Returns why not all was told; the run itself has
    ended well.
    """
    environ = opener.base.environ
    try:
        settings = read_sinks(opener.sinks)
        store = SinkStore.open(opener.home)
        try:
            sinks = configured_sinks(settings, environ, store, opener.home)
            within_s = settings.tell_within_s
            if at_most_s is not None:
                within_s = min(within_s, at_most_s)
            since = await position_before(opener.journal, timestamp(opener.began_ns))
            if not await tell(sinks, opener.journal, store, since=since, within_s=within_s):
                return "not everything was told to the sinks; batten sinks list shows why"
        finally:
            store.close()
    except BattenError as error:
        return f"the sinks were not told: {error}"
    return ""


async def position_before(journal: Journal, instant: str) -> int:
    """The position of the last fact that happened before an instant."""
    low, high = 0, await journal.position()
    while low < high:
        middle = (low + high) // 2
        page = await journal.feed(after=middle, limit=1)
        if page and decode(page[0].body).occurred_at < instant:
            low = page[0].position
        else:
            high = middle
    return low
