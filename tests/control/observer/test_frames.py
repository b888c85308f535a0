"""Whatever a runtime tells becomes facts that fit their envelopes."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from batten.contract import facts
from batten.contract.envelope import MAX_ENVELOPE_BYTES, decode
from batten.control.coordination.records import Keeping, Written
from batten.control.observer.contract import Said, SessionSnapshot, StreamError
from batten.control.observer.frames import snapshot_fact, status_fact, write_error, write_said
from batten.journal.contract import Journal
from batten.journal.sqlite import SqliteJournal
from batten.protocols.macp.emitting import NormaliserState
from batten.protocols.macp.normaliser import normalise
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from tests.control.coordination.given import SECRET
from tests.control.observer.elsewhere import DECISION, describe, envelopes
from tests.examples import examples

HUGE = "\x00é" * 200_000


class Kept:
    """A run that stores what it is told."""

    def __init__(self, journal: Journal, keeping: Keeping, run_id: str, fence: int) -> None:
        self.journal = journal
        self.keeping = keeping
        self.run_id = run_id
        self._fence = fence

    async def store(self, written: Written) -> None:
        await self.journal.append(
            self.run_id, written.facts, fence=self._fence, bodies=written.bodies
        )

    def said(self, **fields: Any) -> Written:
        usual: dict[str, Any] = {
            "session_id": "s",
            "mode": DECISION,
            "message_id": "m",
            "message_type": "Proposal",
            "sender": "ann",
            "timestamp_unix_ms": 1,
            "payload": b"",
        }
        return write_said(Said(**{**usual, **fields}), self.run_id, "s", 1, [], self.keeping)


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    journal = SqliteJournal.open(tmp_path)
    keeping = Keeping(journal, Redactor([SECRET]), partial(SealKey.load, str(tmp_path)))
    run_id = await describe(journal, "0190b2f0-0000-7000-8000-000000000001")
    lease = await journal.claim(run_id, "worker")
    yield Kept(journal, keeping, run_id, lease.fence)
    journal.close()


async def test_names_and_texts_of_any_length_fit(kept: Kept) -> None:
    names = dict.fromkeys(("mode", "message_id", "message_type", "sender"), HUGE)
    await kept.store(kept.said(**names, payload=HUGE.encode()))
    snapshot = SessionSnapshot(
        session_id="s",
        state="OPEN",
        mode=HUGE,
        initiator=HUGE,
        participants=(HUGE,) * 1000,
        extension_keys=(HUGE,) * 10,
        context_id=HUGE,
    )
    await kept.store(Written([snapshot_fact(snapshot)], []))
    await kept.store(Written([status_fact("s", "reconnecting", HUGE)], []))
    error = StreamError(code=HUGE, message=HUGE, message_id=HUGE, details=HUGE)
    await kept.store(write_error(error, "s", kept.keeping))
    for stored in await kept.journal.read(kept.run_id):
        assert len(stored.body) <= MAX_ENVELOPE_BYTES


async def test_a_secret_in_a_field_of_bytes_is_sealed_and_not_shown(kept: Kept) -> None:
    from tests.coordination.published import core

    payload = core.SignalPayload(signal_type="x", data=f"key {SECRET}".encode())
    written = kept.said(message_type="Signal", payload=payload.SerializeToString())
    fact = written.facts[-1]
    assert isinstance(fact, facts.MacpFrameObserved)
    assert fact.payload is UNSET
    assert fact.sealed_artifact_id is not UNSET
    assert fact.detail == {"signalType": "x"}


async def test_a_model_call_beside_a_secret_is_kept_without_it(kept: Kept) -> None:
    from tests.coordination.published import core

    call = b'{"promptTokens": 3, "completionTokens": 1, "prompt": "key %s"}' % SECRET.encode()
    payload = core.SignalPayload(signal_type="llm.call.completed", data=call)
    written = kept.said(message_type="Signal", payload=payload.SerializeToString())
    fact = written.facts[-1]
    assert isinstance(fact, facts.MacpFrameObserved)
    assert fact.detail["llmCall"]["totalTokens"] == 4
    assert SECRET not in str(fact)


@settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    message_type=st.sampled_from(("Proposal", "Vote", "Commitment", "Signal", "ToolCall", "?")),
    payload=st.binary(max_size=300) | st.text(max_size=100).map(str.encode),
    name=st.text(max_size=20),
)
async def test_no_bytes_of_a_runtime_stop_its_observer(
    kept: Kept, message_type: str, payload: bytes, name: str
) -> None:
    before = len(await envelopes(kept.journal, kept.run_id))
    await kept.store(kept.said(message_type=message_type, payload=payload, sender=name))
    state = NormaliserState()
    for stored in await kept.journal.read(kept.run_id, limit=1000):
        normalise(state, decode(stored.body))
    assert len(await envelopes(kept.journal, kept.run_id)) > before
