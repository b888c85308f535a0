"""What a shared runtime says to many readers: numbered once, in order, at each one's own pace."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batten.contract.errors import NotFound
from batten.protocols.maestro import hosted
from batten.protocols.maestro.hosted import (
    AskedCapabilities,
    Envelope,
    HeartbeatEnvelope,
    MessageEnvelope,
    ResetEnvelope,
    SnapshotEnvelope,
    SubscribeAsk,
    encode,
)
from batten.protocols.maestro.incoming import Hello
from batten.protocols.maestro.outgoing import (
    HelloOk,
    Message,
    RawAgentEvent,
    ResponseEnd,
    RunEnding,
    Status,
    ToolsSummary,
    UsageTotals,
)
from batten.protocols.maestro.roster import NO_SUBSCRIPTION
from batten.protocols.maestro.subscription import Subscription
from batten.protocols.maestro.vocabulary import Notification
from batten.serve.maestro.outbox import MOST_KEPT, MOST_UNREAD, Mailbox, Outbox
from tests.examples import examples
from tests.maestro.schemas import PRESENT, Published
from tests.protocols.sharing import Shared, snapshot_at

RAW = RawAgentEvent(event_type="x", event={})


def status(text: object) -> Status:
    return Status(message=str(text))


def said(cursor: int, message: Message | None = None) -> MessageEnvelope:
    return MessageEnvelope(cursor=cursor, message=message or status(cursor))


def reset(reason: hosted.ResetReason, cursor: int) -> ResetEnvelope:
    return ResetEnvelope(reason=reason, snapshot=snapshot_at(cursor))


class Stage:
    """An outbox and who listens to it."""

    def __init__(self, outbox: Outbox | None = None) -> None:
        self.registry = Shared().registry
        self.outbox = outbox or Outbox(snapshot_at)

    def viewer(
        self,
        *opt_out: Notification,
        raw: bool = False,
        endings: bool = False,
    ) -> Subscription:
        ask = SubscribeAsk(
            role="viewer",
            capabilities=AskedCapabilities(raw_agent_events=raw, endings=endings),
            opt_out_notifications=opt_out or None,
        )
        return self.registry.subscription(self.registry.subscribe(ask))

    def tell(self, *texts: object) -> None:
        for text in texts:
            self.outbox.publish(status(text))

    def attach(self, cursor: int | None = None) -> Mailbox:
        return self.outbox.attach(self.viewer(), cursor)


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def unread(mailbox: Mailbox) -> list[Envelope]:
    """All that is there to read, and then the mailbox is closed."""
    mailbox.close()
    heard: list[Envelope] = []
    while (envelope := await mailbox.next()) is not None:
        heard.append(envelope)
    return heard


async def test_a_mailbox_begins_when_it_is_opened_and_keeps_the_order(stage: Stage) -> None:
    stage.tell(1)
    viewer = stage.viewer()
    mailbox = stage.outbox.open(viewer)
    stage.tell(2, 3)
    stage.outbox.publish_snapshot()
    assert stage.outbox.mailbox(viewer.subscription_id) is mailbox
    assert await unread(mailbox) == [said(2), said(3), SnapshotEnvelope(snapshot=snapshot_at(4))]


async def test_a_reader_waits_for_what_comes_and_for_the_end(stage: Stage) -> None:
    viewer = stage.viewer()
    mailbox = stage.outbox.open(viewer)
    waiting = asyncio.ensure_future(mailbox.next())
    await asyncio.sleep(0)
    stage.tell(1)
    assert await waiting == said(1)
    waiting = asyncio.ensure_future(mailbox.next())
    await asyncio.sleep(0)
    stage.outbox.close(viewer.subscription_id)
    assert await waiting is None
    with pytest.raises(NotFound, match=NO_SUBSCRIPTION):
        stage.outbox.mailbox(viewer.subscription_id)
    stage.outbox.close(viewer.subscription_id)
    stage.tell(2)
    assert await mailbox.next() is None


async def test_a_reader_that_gives_up_waiting_loses_nothing(stage: Stage) -> None:
    mailbox = stage.outbox.open(stage.viewer())
    waiting = asyncio.ensure_future(mailbox.next())
    await asyncio.sleep(0)
    stage.tell(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await mailbox.next() == said(1)


async def test_a_full_mailbox_becomes_one_reset_before_anything_newer() -> None:
    stage = Stage(Outbox(snapshot_at, mailbox=2))
    slow, quick = stage.outbox.open(stage.viewer()), stage.outbox.open(stage.viewer())
    for text in range(1, 8):
        stage.tell(text)
        assert await quick.next() == said(text)
    assert await slow.next() == reset("lagged", 7)
    stage.tell(8, 9)
    assert await unread(slow) == [said(8), said(9)]
    assert await unread(quick) == [said(8), said(9)]


async def test_as_much_as_a_mailbox_holds_is_no_lag() -> None:
    stage = Stage(Outbox(snapshot_at, mailbox=2))
    mailbox = stage.outbox.open(stage.viewer("compaction", "status"))
    raw = stage.outbox.open(stage.viewer(raw=True))
    stage.tell(1, 2, 3)
    stage.outbox.publish_snapshot()
    assert await unread(mailbox) == [SnapshotEnvelope(snapshot=snapshot_at(4))]
    assert await unread(raw) == [reset("lagged", 4)]


async def test_a_mailbox_is_full_of_bytes_too_however_few_they_are_in_number(stage: Stage) -> None:
    large = "x" * (1 << 20)
    fits = MOST_UNREAD // (1 << 20) - 1
    slow, quick = stage.outbox.open(stage.viewer()), stage.outbox.open(stage.viewer())
    for _ in range(fits):
        stage.tell(large)
        assert isinstance(await quick.next(), MessageEnvelope)
    assert isinstance(await slow.next(), MessageEnvelope)
    stage.tell(large, large)
    assert await slow.next() == reset("lagged", fits + 2)
    stage.tell(*[large] * fits)
    assert len(await unread(slow)) == fits
    assert await quick.next() == reset("lagged", 2 * fits + 2)


async def test_the_ring_is_full_of_bytes_too(stage: Stage) -> None:
    large = "x" * (1 << 20)
    fits = MOST_KEPT // (1 << 20) - 1
    stage.tell(1, *[large] * fits)
    assert len(await unread(stage.attach(0))) == fits + 1
    stage.tell(large)
    assert await unread(stage.attach(0)) == [reset("replay_gap", fits + 2)]
    assert len(await unread(stage.attach(2))) == fits


async def test_a_stream_without_a_cursor_begins_with_what_is_true(stage: Stage) -> None:
    stage.tell(1, 2)
    mailbox = stage.attach()
    stage.tell(3)
    assert await unread(mailbox) == [SnapshotEnvelope(snapshot=snapshot_at(2)), said(3)]
    assert stage.outbox.cursor == 3


async def test_a_stream_with_a_cursor_begins_after_it(stage: Stage) -> None:
    stage.tell(1, 2)
    stage.outbox.publish_snapshot()
    stage.tell(4)
    told = [said(1), said(2), SnapshotEnvelope(snapshot=snapshot_at(3)), said(4)]
    for cursor in range(5):
        assert await unread(stage.attach(cursor)) == told[cursor:]


@pytest.mark.parametrize("cursor", [-999, -1, 1, 9, 10**12])
async def test_a_cursor_that_misses_something_begins_with_a_reset(cursor: int) -> None:
    stage = Stage(Outbox(snapshot_at, ring=3))
    stage.tell(*range(1, 6))
    mailbox = stage.attach(cursor)
    stage.tell(6)
    assert await unread(mailbox) == [reset("replay_gap", 5), said(6)]


async def test_what_the_ring_still_holds_is_enough(stage: Stage) -> None:
    stage = Stage(Outbox(snapshot_at, ring=3))
    stage.tell(*range(1, 6))
    assert await unread(stage.attach(2)) == [said(3), said(4), said(5)]


async def test_before_anything_was_said_only_a_negative_cursor_misses_it(stage: Stage) -> None:
    assert await unread(stage.attach(0)) == []
    assert await unread(stage.attach(-1)) == [reset("replay_gap", 0)]


async def test_what_was_said_before_an_outbox_is_missed_by_every_older_cursor() -> None:
    stage = Stage(Outbox(snapshot_at, cursor=42))
    assert await unread(stage.attach(41)) == [reset("replay_gap", 42)]
    stage.tell(43)
    assert await unread(stage.attach(42)) == [said(43)]


async def test_a_long_replay_is_no_lag_but_falling_behind_after_it_is() -> None:
    stage = Stage(Outbox(snapshot_at, ring=50, mailbox=2))
    stage.tell(*range(1, 51))
    patient, late = stage.attach(0), stage.attach(0)
    stage.tell(51, 52)
    assert await unread(patient) == [said(cursor) for cursor in range(1, 53)]
    assert await late.next() == said(1)
    stage.tell(53)
    assert await unread(late) == [reset("lagged", 53)]


async def test_what_is_said_to_one_connection_has_a_cursor_and_is_not_said_again(
    stage: Stage,
) -> None:
    asking, other = stage.viewer(), stage.viewer()
    second = stage.registry.subscription(
        stage.registry.subscribe(SubscribeAsk(connection_id=asking.connection.connection_id))
    )
    mailboxes = [stage.outbox.open(one) for one in (asking, second, other)]
    agreed = stage.registry.greet(asking.connection.connection_id, Hello())
    assert isinstance(agreed, HelloOk)
    stage.outbox.publish(agreed, only=asking.connection.connection_id)
    stage.tell(2)
    mine = [said(1, agreed), said(2)]
    assert [await unread(one) for one in mailboxes] == [mine, mine, [said(2)]]
    assert await unread(stage.attach(0)) == [said(2)]


async def test_what_was_said_to_one_connection_first_is_missed_by_nobody() -> None:
    stage = Stage(Outbox(snapshot_at, ring=2))
    stage.outbox.publish(status("private"), only="conn_9")
    stage.tell(2, 3)
    assert await unread(stage.attach(0)) == [said(2), said(3)]
    stage.tell(4)
    assert await unread(stage.attach(1)) == [reset("replay_gap", 4)]
    assert await unread(stage.attach(2)) == [said(3), said(4)]


async def test_each_mailbox_is_spared_what_its_subscription_is(stage: Stage) -> None:
    plain, spared, curious = stage.viewer(), stage.viewer("status"), stage.viewer(raw=True)
    mailboxes = [stage.outbox.open(one) for one in (plain, spared, curious)]
    stage.outbox.publish(RAW)
    stage.tell(2)
    replayed = [stage.outbox.attach(one, 0) for one in (plain, spared, curious)]
    expected = [[said(2)], [], [said(1, RAW), said(2)]]
    assert [await unread(one) for one in mailboxes] == expected
    assert [await unread(one) for one in replayed] == expected


async def test_a_new_greeting_counts_for_what_is_said_after_it(stage: Stage) -> None:
    viewer = stage.viewer()
    mailbox = stage.outbox.open(viewer)
    stage.tell(1)
    spared = Hello(opt_out_notifications=("status",))
    stage.registry.greet(viewer.connection.connection_id, spared)
    stage.tell(2)
    assert await unread(mailbox) == [said(1)]


async def test_how_a_run_ended_is_said_to_who_asked_for_it_only(stage: Stage) -> None:
    plain, asking = stage.outbox.open(stage.viewer()), stage.outbox.open(stage.viewer(endings=True))
    usage = UsageTotals(
        input_tokens=1,
        output_tokens=1,
        cache_read_tokens=0,
        cache_write_tokens=0,
        total_tokens=2,
        total_cost_usd=0.0,
        model_id="m",
        provider="p",
    )
    summary = ToolsSummary(tools_used=(), calls_succeeded=0, calls_failed=0)
    end = ResponseEnd(response_id="r", usage=usage, tools_summary=summary, duration_ms=1)
    ended = msgspec.structs.replace(end, ending=RunEnding(run_id="run_1", outcome="completed"))
    stage.outbox.publish(ended)
    assert await unread(plain) == [said(1, end)]
    assert await unread(asking) == [said(1, ended)]


async def test_heartbeats_fill_silence_where_they_are_wanted(stage: Stage) -> None:
    stage.tell(1)
    mailbox = stage.outbox.open(stage.viewer())
    assert await mailbox.next(heartbeat_s=0) == HeartbeatEnvelope(cursor=1)
    stage.tell(2)
    assert await mailbox.next(heartbeat_s=0) == said(2)
    assert await mailbox.next(heartbeat_s=0) == HeartbeatEnvelope(cursor=2)
    spared = stage.outbox.open(stage.viewer("heartbeat"))
    waiting = asyncio.ensure_future(spared.next(heartbeat_s=0))
    await asyncio.sleep(0)
    stage.tell(3)
    assert await waiting == said(3)


def restored(ring: int = 512) -> Stage:
    """After a restore at cursor 42."""
    return Stage(Outbox(snapshot_at, ring=ring, cursor=42, restored=snapshot_at(42)))


async def test_a_reader_whose_stream_broke_goes_on_after_its_cursor(stage: Stage) -> None:
    viewer = stage.viewer()
    mailbox = stage.outbox.open(viewer)
    stage.tell(1, 2, 3)
    assert [await mailbox.next(), await mailbox.next()] == [said(1), said(2)]  # 2 got lost
    stage.outbox.publish(status("own"), only=viewer.connection.connection_id)
    stage.tell(5)
    again = stage.outbox.resume(viewer.subscription_id, 1)
    assert again is mailbox
    stage.tell(6)
    expected = [said(2), said(3), said(4, status("own")), said(5), said(6)]
    assert await unread(mailbox) == expected


async def test_a_reader_that_comes_back_too_late_is_reset_and_hears_nothing_twice() -> None:
    stage = Stage(Outbox(snapshot_at, ring=2, mailbox=2))
    viewer = stage.viewer()
    mailbox = stage.outbox.open(viewer)
    stage.tell(1, 2, 3)  # too many for the mailbox
    stage.outbox.resume(viewer.subscription_id, 2)
    stage.tell(4)
    assert await mailbox.next() == said(3)
    stage.tell(5)
    stage.outbox.resume(viewer.subscription_id, 0)
    stage.tell(6)
    assert await unread(mailbox) == [reset("replay_gap", 5), said(6)]
    with pytest.raises(NotFound, match=NO_SUBSCRIPTION):
        stage.outbox.resume("sub_none", 0)


async def test_a_restored_stream_begins_with_its_reset_for_every_older_cursor() -> None:
    stage = restored()
    stage.tell(43)
    marker = reset("restored_from_snapshot", 42)
    for cursor in (0, 41, 42):
        assert await unread(stage.attach(cursor)) == [marker, said(43)]
    assert await unread(stage.attach(43)) == []
    assert await unread(stage.attach(-1)) == [reset("replay_gap", 43)]
    assert await unread(stage.attach(44)) == [reset("replay_gap", 43)]
    assert await unread(stage.attach()) == [reset("restored_from_snapshot", 43)]
    subscribed = stage.outbox.open(stage.viewer())
    stage.tell(44)
    assert await unread(subscribed) == [reset("restored_from_snapshot", 43), said(44)]


async def test_the_last_state_has_the_cursor_of_the_last_message(stage: Stage) -> None:
    stage.tell(1)
    reading = stage.attach(1)
    stage.outbox.publish_end()
    last = SnapshotEnvelope(snapshot=snapshot_at(1))
    assert stage.outbox.cursor == 1
    assert await unread(reading) == [last]
    assert await unread(stage.attach(1)) == [last]
    assert await unread(stage.attach(0)) == [said(1), last]


async def test_a_restored_stream_that_lost_its_reset_has_a_gap_for_every_older_cursor() -> None:
    stage = restored(ring=2)
    stage.tell(43, 44)
    for cursor in (0, 42):
        assert await unread(stage.attach(cursor)) == [reset("replay_gap", 44)]
    assert await unread(stage.attach(43)) == [said(44)]


@pytest.mark.skipif(not PRESENT, reason="the published files are not beside this")
async def test_all_that_is_read_is_valid_against_the_published_schemas() -> None:
    judge = Published()
    stage = Stage(Outbox(snapshot_at, mailbox=2))
    stage.tell(1)
    slow = stage.attach(0)
    stage.outbox.publish_snapshot()
    stage.tell(3, 4, 5)
    heard = [*await unread(slow), *await unread(stage.attach(0)), *await unread(stage.attach(-999))]
    kinds: set[str] = set()
    for envelope in heard:
        wire = msgspec.json.decode(hosted.encode(envelope))
        kinds.add(wire["type"])
        if wire["type"] == "message":
            judge.check(wire["message"])
        else:
            name = wire["type"].capitalize()
            judge.check_named(f"HeadlessRuntime{name}EnvelopeSchema", wire)
    assert kinds == {"message", "snapshot", "reset"}


class Reader:
    """Follows a stream, and knows whether anything that was said to all can have passed it by."""

    def __init__(self, mailbox: Mailbox, position: int, public: Callable[[int, int], int]) -> None:
        self._mailbox = mailbox
        self._position = position
        self._public = public

    async def read(self) -> bool:
        envelope = await self._mailbox.next(heartbeat_s=0)
        match envelope:
            case MessageEnvelope():
                assert envelope.cursor > self._position
                assert self._public(self._position, envelope.cursor) == 0
                self._position = envelope.cursor
                return True
            case SnapshotEnvelope() | ResetEnvelope():
                assert envelope.snapshot.cursor >= self._position
                self._position = envelope.snapshot.cursor
                return True
            case _:
                return False

    async def read_up(self, cursor: int) -> None:
        """At the end of it, nothing that was said to all is missing."""
        while await self.read():
            pass
        assert self._public(self._position, cursor + 1) == 0


steps = st.one_of(
    st.tuples(st.just("say"), st.integers(1, 6)),
    st.tuples(st.just("snapshot"), st.just(0)),
    st.tuples(st.just("private"), st.integers(0, 3)),
    st.tuples(st.just("open"), st.just(0)),
    st.tuples(st.just("attach"), st.integers(-2, 30)),
    st.tuples(st.just("return"), st.integers(-2, 30)),
    st.tuples(st.just("read"), st.integers(0, 3)),
)


@given(st.lists(steps, max_size=40), st.integers(1, 5), st.integers(1, 4), st.integers(0, 3))
@settings(max_examples=examples(150), deadline=None)
def test_no_reader_however_slow_hears_anything_twice_or_out_of_order_or_misses_it_unsaid(
    plan: list[tuple[str, int]], ring: int, room: int, start: int
) -> None:
    asyncio.run(_played(plan, ring, room, start))


async def _played(plan: list[tuple[str, int]], ring: int, room: int, start: int) -> None:
    left = snapshot_at(start) if start else None
    stage = Stage(Outbox(snapshot_at, ring=ring, mailbox=room, cursor=start, restored=left))
    outbox, public, readers = stage.outbox, set[int](), list[Reader]()

    def between(after: int, before: int) -> int:
        return sum(after < cursor < before for cursor in public)

    for kind, number in plan:
        match kind:
            case "say":
                for _ in range(number):
                    stage.tell("x")
                    public.add(outbox.cursor)
            case "snapshot":
                outbox.publish_snapshot()
            case "private":
                outbox.publish(status("mine"), only=f"conn_{number}")
            case "open":
                readers.append(Reader(outbox.open(stage.viewer()), outbox.cursor, between))
            case "attach":
                # Whatever a reader says that it has seen, what it hears is true and complete.
                seen = number if 0 <= number <= outbox.cursor else -1
                readers.append(Reader(stage.attach(number), seen, between))
            case "return":  # on another stream of the same subscription
                seen = number if 0 <= number <= outbox.cursor else -1
                viewer = stage.viewer()
                outbox.open(viewer)
                resumed = outbox.resume(viewer.subscription_id, number)
                readers.append(Reader(resumed, seen, between))
            case _:
                for reader in readers[number:]:
                    await reader.read()
    for reader in readers:
        await reader.read_up(outbox.cursor)


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 3))
@settings(max_examples=examples(100), deadline=None)
def test_however_far_a_reader_falls_behind_it_is_reset_once_before_anything_newer(
    bursts: list[int], room: int
) -> None:
    asyncio.run(_burst(bursts, room))


async def _burst(bursts: list[int], room: int) -> None:
    """A reader that takes one between two bursts: what it takes is known beforehand."""
    stage = Stage(Outbox(snapshot_at, mailbox=room))
    mailbox = stage.outbox.open(stage.viewer())
    waiting: list[int] = []
    lagged = False
    for burst in bursts:
        for _ in range(burst):
            stage.tell(stage.outbox.cursor + 1)
            if not lagged and len(waiting) == room:
                lagged = True
            waiting = [] if lagged else [*waiting, stage.outbox.cursor]
        if lagged:
            assert await mailbox.next() == reset("lagged", stage.outbox.cursor)
            lagged = False
        elif waiting:
            assert await mailbox.next() == said(waiting.pop(0))
        else:
            heartbeat = HeartbeatEnvelope(cursor=stage.outbox.cursor)
            assert await mailbox.next(heartbeat_s=0) == heartbeat


async def test_a_hundred_readers_share_one_encoding_of_a_message(stage: Stage) -> None:
    mailboxes = [stage.outbox.open(stage.viewer()) for _ in range(100)]
    late = stage.outbox.cursor
    stage.tell("once")
    mailboxes.append(stage.attach(late))
    posted = [await mailbox.next_posted() for mailbox in mailboxes]
    encodings = {id(one.encoded) for one in posted if one is not None}
    assert len(encodings) == 1
    assert posted[0] is not None
    assert posted[0].encoded == encode(said(1, status("once")))
