"""Facts with times of their own, kept in part: what a reader of all runs then sees."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Unpack

import msgspec

from batten.contract import facts as f
from batten.contract.envelope import Envelope, encode, payload, timestamp
from batten.contract.ids import Minter
from batten.control.views.folding import Folding
from batten.control.views.folds import EVENTS, RUNS, VIEWS
from batten.control.views.store import ViewStore
from batten.control.views.tail import Tail
from batten.journal.contract import Stored
from batten.journal.filters import FeedFilters
from batten.journal.sqlite.database import Database
from tests.protocols.macp.making import CHAT_ID, START_NS

Read = Callable[[Database], Any]
_minter = Minter()


def stored(position: int, run_id: str, sequence: int, fact: f.Fact, second: float) -> Stored:
    """A fact of a run, so many seconds after the beginning."""
    envelope = Envelope(
        event_id="evt_" + _minter.mint(),
        run_id=run_id,
        session_id=CHAT_ID,
        sequence=sequence,
        occurred_at=timestamp(START_NS + round(second * 1e9)),
        type=fact.type,
        data=payload(fact),
    )
    return Stored(position, run_id, sequence, fact.type, encode(envelope))


class Facts:
    """A feed of facts that are given."""

    def __init__(self, facts: Sequence[Stored]) -> None:
        self._facts = facts

    async def feed(
        self, *, after: int = 0, limit: int = 256, **filters: Unpack[FeedFilters]
    ) -> list[Stored]:
        until = filters.get("until") or self.position
        return [one for one in self._facts if after < one.position <= until][:limit]

    @property
    def position(self) -> int:
        return max((one.position for one in self._facts), default=0)


async def ask(
    home: Path, facts: Sequence[Stored], *reads: Read, keep: Sequence[int] = ()
) -> list[Any]:
    """What reads of all runs give, if the file holds the facts up to the last of these places.

    It is committed at each of them; what follows is folded by the reader.
    """
    store = ViewStore.open(home)
    feed = Facts(facts)
    with closing(store), closing(Tail(feed, store.file)) as tail:
        since = 0
        for place in sorted({*keep} - {0}):
            keep_facts(store, [one for one in facts if since < one.position <= place], since, place)
            since = place
        await tail.follow((RUNS, EVENTS), feed.position)
        return [tail.read((RUNS, EVENTS), read) for read in reads]


def keep_facts(store: ViewStore, facts: Sequence[Stored], since: int, position: int) -> None:
    def load(run_id: str) -> list[Any]:
        rows = [(view, store.kept(view.name, run_id)) for view in VIEWS]
        return [view.state() if row is None else view.decode(row.body) for view, row in rows]

    folding = Folding(VIEWS, load)
    for one in facts:
        folding.take(one)
    store.commit(VIEWS, folding.changes, since=since, position=position)


def encoded(values: Sequence[Any]) -> list[bytes]:
    return [msgspec.json.encode(one) for one in values]
