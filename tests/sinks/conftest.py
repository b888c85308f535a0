from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from batten.journal.sqlite import SqliteJournal
from batten.sinks.store import SinkStore
from tests.sinks.nats_server import NatsServer, nats_server
from tests.sinks.receiving import Clock, Receiver


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    opened = SqliteJournal.open(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[SinkStore]:
    opened = SinkStore.open(str(tmp_path), clock)
    yield opened
    opened.close()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A NATS server with a stream for the event bus."""
    async with nats_server(tmp_path) as running:
        await running.add_stream()
        yield running


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()
