"""Webhooks: filters, bodies, signatures, rotation, bad receivers, forbidden addresses."""

import asyncio
import hmac
import socket
import threading
import time
from collections.abc import AsyncIterator
from email.utils import formatdate
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from standardwebhooks import Webhook

from batten.contract import facts
from batten.contract.errors import CallerError, NotFound, Refused
from batten.contract.facts.macp import BoundPolicy
from batten.contract.ids import new_session_id, new_task_id, session_stream, to_uuid
from batten.journal.contract import NewRun
from batten.journal.sqlite import SqliteJournal
from batten.sinks.configuration import (
    GIVE_UP_S,
    SinkSettings,
    configured_sinks,
    read_sinks,
    webhook,
)
from batten.sinks.contract import Message
from batten.sinks.running import close_reader, open_reader
from batten.sinks.store import SinkStore
from batten.sinks.webhooks.subscription import (
    OVERLAP_S,
    Change,
    Secret,
    Subscription,
    Subscriptions,
    new_secret,
    sink_name,
)
from batten.sinks.webhooks.transport import WebhookTransport
from tests.journal.given import FINISHED, STARTED, new_run
from tests.ports import free_port
from tests.sinks.http_receiver import HttpReceiver, Received, http_receiver
from tests.sinks.receiving import Clock, pass_time, settle

HOUR = 3600.0
ALLOW = ("127.0.0.0/8",)
FAILED = facts.RunFailed("budget_exceeded", "too much", False, 1, outcome="budget")


@pytest.fixture
async def receiver() -> AsyncIterator[HttpReceiver]:
    async with http_receiver() as running:
        yield running


def subscription(receiver: HttpReceiver, **more: Any) -> Subscription:
    usual: dict[str, Any] = {"id": "test", "url": receiver.url, "secrets": (Secret("s3cret"),)}
    return Subscription(**(usual | more))


IDS = frozenset(("event", "runId", "journalId", "status", "timestamp", "taskId"))


async def run_of(
    journal: SqliteJournal, *then: facts.Fact, workspace: str = "/repos", **given: Any
) -> NewRun:
    """A run with its first two facts and these."""
    run = new_run(**given)
    queued = facts.RunQueued("agent_loop", "m", "p", workspace, "in_place", None)
    lease, _ = await journal.create(run, [queued, STARTED])
    assert lease is not None
    if then:
        await journal.append(run.run_id, then, fence=lease.fence)
    return run


async def told(journal: SqliteJournal, store: SinkStore, wanted: Subscription) -> None:
    """Tell a subscription everything from the start."""
    sink = webhook(wanted, ALLOW, store)
    store.add(sink.name, 0)
    reader = await open_reader(sink, journal, store)
    await settle(reader)
    await close_reader(reader, store)


def events(received: list[Received]) -> list[tuple[str, str]]:
    bodies = [msgspec.json.decode(one.body) for one in received]
    return [(one["event"], one["runId"]) for one in bodies]


async def test_a_task_is_told_without_a_run(
    journal: SqliteJournal, store: SinkStore, receiver: HttpReceiver
) -> None:
    session, task = new_session_id(), new_task_id()
    stream = session_stream(session)
    own = NewRun(run_id=stream, kind="session", worker_id="", session_id=session, task_id=task)
    created = facts.TaskCreated("t", "agent_loop", "in_place", "normal", "ann")
    await journal.create(own, [facts.SessionOpened("/repos", task, "serve"), created])
    await told(journal, store, subscription(receiver))
    [body] = [msgspec.json.decode(one.body) for one in receiver.taken]
    assert (body["event"], body["runId"], body["journalId"]) == ("task.created", None, stream)
    assert (body["taskId"], body["sessionId"]) == (task, session)


async def test_a_run_is_told_as_the_control_plane_says_and_signed_both_ways(
    journal: SqliteJournal, store: SinkStore, receiver: HttpReceiver, clock: Clock
) -> None:
    secret = new_secret()
    run = await run_of(journal, FAILED)
    # The library that verifies refuses times far from its own clock.
    clock.seconds = time.time()
    await told(journal, store, subscription(receiver, secrets=(Secret(secret),)))
    shown = to_uuid(run.run_id)
    assert events(receiver.taken) == [
        ("run.queued", shown),
        ("run.started", shown),
        ("run.failed", shown),
    ]
    for one in receiver.taken:
        body = msgspec.json.decode(one.body)
        assert body.keys() == {*IDS, "data"}
        assert body["journalId"] == run.run_id
        assert one.headers["content-type"] == "application/json"
        assert one.headers["x-macp-event"] == body["event"]
        expected = hmac.digest(secret.encode(), one.body, sha256).hex()
        assert one.headers["x-macp-signature"] == expected
        Webhook(secret).verify(one.body, one.headers)
    last = msgspec.json.decode(receiver.taken[-1].body)
    assert (last["status"], last["data"]["outcome"], last["data"]["error"]) == (
        "failed",
        "budget",
        "too much",
    )
    ids = [one.headers["webhook-id"] for one in receiver.taken]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, ["run.queued", "run.started", "run.completed"] * 2),
        ({"events": ("run.completed",)}, ["run.completed"] * 2),
        ({"events": ("run.failed", "run.started")}, ["run.started"] * 2),
        ({"outcomes": ("completed",)}, ["run.completed"] * 2),
        ({"outcomes": ("budget",)}, []),
        ({"tasks": ("task_one",)}, ["run.queued", "run.started", "run.completed"]),
        ({"workspaces": ("/repos/one/",)}, ["run.queued", "run.started", "run.completed"]),
        ({"workspaces": ("/repos/on",)}, []),
        ({"workspaces": ("/repos",)}, ["run.queued", "run.started", "run.completed"] * 2),
    ],
)
async def test_filters(
    journal: SqliteJournal,
    store: SinkStore,
    receiver: HttpReceiver,
    wanted: dict[str, Any],
    expected: list[str],
) -> None:
    await run_of(journal, FINISHED, workspace="/repos/one", task_id="task_one")
    await run_of(journal, FINISHED, workspace="/repos/two")
    await told(journal, store, subscription(receiver, **wanted))
    assert sorted(event for event, _ in events(receiver.taken)) == sorted(expected)


async def test_what_a_child_asks_is_told_and_how_it_fares_is_not(
    journal: SqliteJournal, store: SinkStore, receiver: HttpReceiver
) -> None:
    child = new_run(session_id="chat_1")
    queued = facts.RunQueued(
        *("agent_loop", "m", "p", "/w", "in_place", None), parent_run_id="run_1"
    )
    asked = facts.ApprovalRequested("appr_1", "call_1", "bash", "?", "ask")
    answered = facts.ApprovalResolved("appr_1", "approved", "ann", "")
    blocked = facts.PolicyToolBlocked("call_2", "bash", "never")
    await journal.create(child, [queued, STARTED, asked, answered, blocked, FINISHED])
    await told(journal, store, subscription(receiver))
    assert [event for event, _ in events(receiver.taken)] == [
        *("approval.requested", "approval.resolved", "policy.tool_blocked"),
    ]


async def test_a_thin_body_has_ids_only_and_questions_suspend_once(
    journal: SqliteJournal, store: SinkStore, receiver: HttpReceiver
) -> None:
    run = await run_of(
        journal,
        facts.ApprovalRequested("appr_1", "call_1", "bash", "rm?", "ask"),
        facts.ApprovalRequested("appr_2", "call_2", "bash", "ls?", "ask"),
        facts.ApprovalResolved("appr_1", "rejected", "ann", "no"),
        facts.ApprovalResolved("appr_2", "approved", "ann", "yes"),
        FINISHED,
    )
    await told(journal, store, subscription(receiver, body="thin"))
    bodies = [msgspec.json.decode(one.body) for one in receiver.taken]
    assert {frozenset(body) for body in bodies} == {IDS}
    assert {body["runId"] for body in bodies} == {to_uuid(run.run_id)}
    assert [(body["event"], body["status"]) for body in bodies] == [
        ("run.queued", "queued"),
        ("run.started", "running"),
        ("approval.requested", "suspended"),
        ("run.suspended", "suspended"),
        ("approval.requested", "suspended"),
        ("approval.resolved", "suspended"),
        ("approval.resolved", "suspended"),
        ("run.resumed", "running"),
        ("run.completed", "completed"),
    ]


async def test_a_session_that_is_suspended_and_resumed_is_told(
    journal: SqliteJournal, store: SinkStore, receiver: HttpReceiver
) -> None:
    run = new_run(kind="coordination", session_id="chat_1")
    queued = facts.RunQueued("coordination", None, None, "", "in_place", None)
    policy = BoundPolicy(
        policy_id="policy.default", mode="*", description="", rules="{}", schema_version=1
    )
    bound = facts.MacpSessionBound(
        session_id="s1",
        mode="macp.mode.decision.v1",
        mode_version="1.0.0",
        configuration_version="c",
        initiator="lead",
        participants=["lead"],
        policy=policy,
        deadline_unix_ms=1,
        semantics_rev=4,
        redact=[r"ticket-\d+"],
    )
    changes = [
        facts.MacpSessionChanged(state, at_unix_ms=1, by="lead", reason="ticket-7", banked_ms=0)
        for state in ("SUSPENDED", "OPEN")
    ]
    await journal.create(run, [queued, STARTED, bound, *changes, FINISHED])
    observed = new_run(kind="coordination", session_id="chat_2")
    frames = [
        facts.MacpFrameObserved("session_snapshot", "s2", {"state": f"SESSION_STATE_{state}"})
        for state in ("OPEN", "SUSPENDED", "SUSPENDED", "OPEN", "OPEN", "RESOLVED")
    ]
    await journal.create(observed, [queued, STARTED, *frames, FINISHED])
    await told(journal, store, subscription(receiver))
    for one in (run, observed):
        bodies = [msgspec.json.decode(taken.body) for taken in receiver.taken]
        mine = [body for body in bodies if body["journalId"] == one.run_id]
        assert [(body["event"], body["status"]) for body in mine] == [
            ("run.queued", "queued"),
            ("run.started", "running"),
            ("run.suspended", "suspended"),
            ("run.resumed", "running"),
            ("run.completed", "completed"),
        ]
    reasons = [body["data"].get("reason") for body in bodies if body["journalId"] == run.run_id]
    assert reasons == [None, None, "[REDACTED]", "[REDACTED]", None]


async def test_a_rotated_secret_signs_beside_the_old_one_for_a_day(
    journal: SqliteJournal, store: SinkStore, receiver: HttpReceiver, clock: Clock, tmp_path: Path
) -> None:
    clock.seconds = time.time()
    old, new = new_secret(), new_secret()
    subscriptions = Subscriptions(store, str(tmp_path))
    made, shown = subscriptions.create(Change(url=receiver.url, secret=old), 0)
    assert shown == old
    made = subscriptions.change(made.id, Change(secret=new))
    assert made.signing(clock.seconds) == [new, old]
    await run_of(journal)
    await told(journal, store, made)
    for one in receiver.taken:
        Webhook(new).verify(one.body, one.headers)
        Webhook(old).verify(one.body, one.headers)
        previous = hmac.digest(old.encode(), one.body, sha256).hex()
        assert one.headers["x-macp-signature-previous"] == previous
    clock.seconds += OVERLAP_S + 1
    assert subscriptions.find(made.id).signing(clock.seconds) == [new]
    stored = (tmp_path / "sinks.db").read_bytes() + (tmp_path / "sinks.db-wal").read_bytes()
    assert old.encode() not in stored
    assert new.encode() not in stored


@pytest.mark.parametrize("behaviour", [500, 404, "hang", "cut", (302, "http://127.0.0.1:1/x")])
async def test_receivers_that_misbehave_are_told_when_they_are_well_again(
    journal: SqliteJournal,
    store: SinkStore,
    receiver: HttpReceiver,
    clock: Clock,
    behaviour: Any,
) -> None:
    runs = [await run_of(journal, FINISHED) for _ in range(5)]
    wanted = subscription(receiver)
    sink = webhook(wanted, ALLOW, store)
    hasty = msgspec.structs.replace(
        sink, connect=lambda: WebhookTransport(wanted, store.now, ALLOW, timeout_s=0.05)
    )
    store.add(sink.name, 0)
    receiver.behave = lambda one: behaviour
    reader = await open_reader(hasty if behaviour == "hang" else sink, journal, store)
    clock.seconds = time.time()
    await pass_time(reader, store, clock, HOUR)
    assert receiver.taken == []
    assert not store.entries(status="dead")
    await close_reader(reader, store)
    receiver.behave = lambda one: 200
    reader = await open_reader(sink, journal, store)
    await pass_time(reader, store, clock, HOUR)
    taken = events(receiver.taken)
    for run in runs:
        assert [event for event, run_id in taken if run_id == to_uuid(run.run_id)] == [
            "run.queued",
            "run.started",
            "run.completed",
        ]
    await close_reader(reader, store)


@pytest.mark.parametrize(
    ("asked", "waits"),
    [
        ("7200", 2 * HOUR),
        (2 * HOUR, 2 * HOUR),
        (1000 * HOUR, 24 * HOUR),
        (-HOUR, 1),
        ("soon", 1),
    ],
)
async def test_a_receiver_says_when_to_come_again(
    journal: SqliteJournal,
    store: SinkStore,
    receiver: HttpReceiver,
    clock: Clock,
    asked: str | float,
    waits: float,
) -> None:
    """A number of seconds stands for the date that lies so far ahead."""
    await run_of(journal, FINISHED)
    clock.seconds = float(int(time.time()))
    sink = webhook(subscription(receiver), ALLOW, store)
    store.add(sink.name, 0)
    receiver.behave = lambda one: 429
    if not isinstance(asked, str):
        asked = formatdate(clock.seconds + asked, usegmt=True)
    receiver.headers = {"Retry-After": asked}
    reader = await open_reader(sink, journal, store)
    await reader.step()
    first = store.entries(sink.name, "pending")[-1]
    assert first.next_at - clock.seconds == pytest.approx(waits, rel=0.2)
    await close_reader(reader, store)


async def test_a_receiver_that_refuses_connections_and_comes_back(
    journal: SqliteJournal, store: SinkStore, clock: Clock
) -> None:
    clock.seconds = time.time()
    port = free_port()
    await run_of(journal, FINISHED)
    wanted = Subscription(id="t", url=f"http://127.0.0.1:{port}/", secrets=(Secret("s"),))
    sink = webhook(wanted, ALLOW, store)
    store.add(sink.name, 0)
    reader = await open_reader(sink, journal, store)
    await pass_time(reader, store, clock, HOUR)
    row = store.sink(sink.name)
    assert row is not None
    problem = f"could not connect to 127.0.0.1:{port}: Connection refused"
    assert (row.pending, row.problem) == (3, problem)
    back = HttpReceiver()
    server = await asyncio.start_server(back.serve, "127.0.0.1", port)
    await pass_time(reader, store, clock, HOUR)
    assert [event for event, _ in events(back.taken)] == [
        "run.queued",
        "run.started",
        "run.completed",
    ]
    server.close()
    await server.wait_closed()
    await close_reader(reader, store)


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 99\r\n\r\nhalf",
        b"Transfer-Encoding: chunked\r\n\r\nno number\r\n",
        b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain",
        b"Content-Type: text/event-stream\r\n\r\ndata: endless\n\n",
    ],
)
async def test_a_receiver_that_took_it_is_not_told_again_for_what_follows_its_headers(
    rest: bytes,
) -> None:
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 202 Accepted\r\n" + rest)
        await reader.read()  # it never ends its answer
        writer.close()
        left.set()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with asyncio.timeout(20), listener:
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"
        to = Subscription(id="t", url=url, secrets=(Secret("s"),))
        message = Message(message_id="m", run_id="r", type="x", occurred_at="", body=b"{}")
        attempt = await WebhookTransport(to, time.time, ALLOW).send(message)
        assert (attempt.result, attempt.status) == ("delivered", 202)
        await left.wait()


async def test_after_72_hours_a_message_is_a_dead_letter(
    journal: SqliteJournal, store: SinkStore, receiver: HttpReceiver, clock: Clock
) -> None:
    clock.seconds = time.time()
    await run_of(journal)
    receiver.behave = lambda one: 500
    wanted = subscription(receiver, events=("run.started",))
    sink = webhook(wanted, ALLOW, store)
    store.add(sink.name, 0)
    reader = await open_reader(sink, journal, store)
    await pass_time(reader, store, clock, GIVE_UP_S - 60)
    assert store.pending(sink.name) == 1
    await pass_time(reader, store, clock, 120)
    [dead] = store.entries(status="dead")
    assert (dead.answer, dead.problem) == (500, "the receiver answered 500 Said")
    assert len(receiver.all) > 72
    await close_reader(reader, store)


async def test_gone_is_final(
    journal: SqliteJournal, store: SinkStore, receiver: HttpReceiver
) -> None:
    await run_of(journal)
    receiver.behave = lambda one: 410
    await told(journal, store, subscription(receiver, events=("run.started",)))
    assert [one.answer for one in store.entries(status="dead")] == [410]


MESSAGE = Message(
    message_id="m",
    run_id="r",
    type="run.started",
    occurred_at="2026-01-01T00:00:00.000Z",
    body=b"{}",
)


async def test_private_addresses_are_refused_at_connect_time_and_logged(
    receiver: HttpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    for url in (
        receiver.url,
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]:1/",
        "http://10.0.0.1/",
        "http://0x7f000001/",
    ):
        wanted = subscription(receiver, url=url)
        attempt = await WebhookTransport(wanted, Clock()).send(MESSAGE)
        assert attempt.result == "retry"
        assert "not a public address" in attempt.problem
    assert receiver.all == []
    assert "webhook test" in caplog.text


async def test_a_name_that_turns_private_between_two_looks_is_refused(
    receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stub gives a public address once and ours ever after: who looks twice connects to us."""
    looks: list[str] = []

    async def resolve(
        loop: asyncio.AbstractEventLoop, host: str, port: int, **more: Any
    ) -> list[Any]:
        looks.append(host)
        address = "93.184.215.14" if len(looks) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", resolve)
    wanted = subscription(receiver, url=f"http://rebinding.example:{receiver.port}/")
    first = await WebhookTransport(wanted, Clock(), timeout_s=1).send(MESSAGE)
    assert first.result == "retry"
    assert looks == ["rebinding.example"]  # one resolution for one attempt
    second = await WebhookTransport(wanted, Clock()).send(MESSAGE)
    assert "127.0.0.1: not a public address" in second.problem
    assert looks == ["rebinding.example"] * 2
    assert receiver.all == []


async def test_a_redirect_to_a_private_address_is_not_followed(receiver: HttpReceiver) -> None:
    async with http_receiver() as inner:
        for status in (301, 302, 303, 307, 308):
            receiver.behave = lambda one, status=status: (status, inner.url)  # type: ignore[misc]
            attempt = await WebhookTransport(subscription(receiver), Clock(), ALLOW).send(MESSAGE)
            assert (attempt.result, attempt.status, attempt.problem) == (
                "retry",
                status,
                "the receiver redirects, which is not followed",
            )
        assert inner.all == []
    receiver.behave = lambda one: (302, "http://[no-address/")
    attempt = await WebhookTransport(subscription(receiver), Clock(), ALLOW).send(MESSAGE)
    assert (attempt.result, attempt.status) == ("retry", 302)


def test_a_change_does_not_undo_that_of_another_process(store: SinkStore, tmp_path: Path) -> None:
    subscriptions = Subscriptions(store, str(tmp_path))
    made, _ = subscriptions.create(Change(url="https://a.example/"), 0)
    subscriptions.change(made.id, Change(active=False))
    [(_, inactive)] = store.all("SELECT id, body FROM webhooks")
    subscriptions.change(made.id, Change(active=True))

    def change() -> None:
        own = SinkStore.open(str(tmp_path))
        Subscriptions(own, str(tmp_path)).change(made.id, Change(tasks=("task_1",)))
        own.close()

    other = threading.Thread(target=change)
    with store.writing() as db:
        other.start()
        other.join(0.5)  # it waits for the lock now
        db.execute("UPDATE webhooks SET body = ?", (inactive,))
    other.join(HOUR)
    found = subscriptions.find(made.id)
    assert (found.active, found.tasks) == (False, ("task_1",))


def test_a_subscription_of_another_key_holds_up_no_other_sink(
    store: SinkStore, tmp_path: Path
) -> None:
    subscriptions = Subscriptions(store, str(tmp_path))
    lost, _ = subscriptions.create(Change(url="https://example.org/a"), 0)
    (tmp_path / "seal.key").unlink()
    bus = {"MAESTRO_EVENT_BUS_URL": "nats://127.0.0.1:1"}
    for kept in ([], ["https://example.org/b"]):  # no key, then another one
        for url in kept:
            subscriptions.create(Change(url=url), 0)
        on = configured_sinks(read_sinks({}), bus, store, str(tmp_path))
        assert len(on) == 1 + len(kept)
        row = store.sink(sink_name(lost.id))
        assert row is not None
        assert "seal.key" in row.problem
        assert [one.url for one in subscriptions.all()] == kept
        with pytest.raises(Refused, match="seal"):
            subscriptions.find(lost.id)
    assert subscriptions.delete(lost.id)


def test_subscriptions_are_checked(store: SinkStore, tmp_path: Path) -> None:
    subscriptions = Subscriptions(store, str(tmp_path))
    for url in (
        "",
        "ftp://a/",
        "http://",
        "https://u:p@host/",
        "not a url",
        "https://exa mple.org/",
        "https://example.org/\n",
        f"https://{'a' * 64}.example/",
        "http://a/" + "x" * 3000,
    ):
        with pytest.raises(CallerError):
            subscriptions.create(Change(url=url), 0)
    for secret in ("", "x" * 256, "two words", "ü"):
        with pytest.raises(CallerError, match="secret"):
            subscriptions.create(Change(url="https://a.example/", secret=secret), 0)
    with pytest.raises(CallerError, match="absolute"):
        subscriptions.create(Change(url="https://a.example/", workspaces=("project",)), 0)
    made, _ = subscriptions.create(Change(url="https://a.example/"), 7)
    assert store.sink(f"webhook:{made.id}") is not None
    assert subscriptions.delete(made.id)
    assert not subscriptions.delete(made.id)
    with pytest.raises(NotFound):
        subscriptions.find(made.id)


def test_settings_name_webhooks_with_secrets_of_the_environment(
    store: SinkStore, tmp_path: Path
) -> None:
    table = {
        "webhooks": {
            "ops": {
                "url": "https://a.example/",
                "secret": ["$NEW", "old"],
                "events": ["run.failed"],
            },
            "off": {"url": "https://b.example/", "secret": "x", "active": False},
        },
        "allow": ["10.0.0.0/8"],
    }
    environ = {"NEW": "fresh"}
    [one] = configured_sinks(read_sinks(table), environ, store, str(tmp_path))
    assert (one.name, one.logs, one.give_up_s) == ("webhook:ops", True, GIVE_UP_S)
    [other] = configured_sinks(read_sinks(table), {"NEW": "changed"}, store, str(tmp_path))
    assert other.version != one.version
    wrongs: tuple[tuple[dict[str, Any], str], ...] = (
        ({"webhooks": {"a": {"url": "https://a.example/"}}}, "needs a `secret`"),
        ({"webhooks": {"a": {"url": "file:///etc", "secret": "s"}}}, "webhooks.a: URL must start"),
        ({"webhooks": {"a": {"url": "https://a.example/", "secret": "$NONE"}}}, "not set"),
        ({"webhooks": {"a": {"url": "https://a.example/", "event": []}}}, "unknown field `event`"),
        ({"webhook": {}}, "unknown field `webhook`"),
        ({"webhooks": {"a": {"url": "https://a.example/", "events": ["run.x"]}}}, "run.x"),
    )
    for wrong, message in wrongs:
        with pytest.raises(CallerError, match=message) as raised:
            configured_sinks(read_sinks(wrong), {}, store, str(tmp_path))
        assert raised.value.code == "config"
    assert configured_sinks(SinkSettings(), {}, store, str(tmp_path)) == []
