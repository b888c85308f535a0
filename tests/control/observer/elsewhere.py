"""A runtime elsewhere, agents on it, and an observer of this process on a home of its own."""

import asyncio
from base64 import b64decode
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from batten.contract import facts
from batten.contract.envelope import Envelope, decode, decode_fact
from batten.contract.facts import Fact
from batten.contract.ids import new_run_id
from batten.control.coordination.records import Keeping
from batten.control.coordination.run_facts import new_stream, queued
from batten.control.observer.breaker import Breaker
from batten.control.observer.link import RuntimeLink
from batten.control.observer.observer import Observer
from batten.journal.contract import Journal, NewRun, RunRow
from batten.journal.recorder import load_artifact, open_sealed
from batten.journal.sqlite import SqliteJournal
from batten.protocols.macp import judgements
from batten.protocols.macp.emitting import NormaliserState
from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.normaliser import VERSION, normalise
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from batten.serve.grpc.client import Dialling, GrpcRuntime
from batten.serve.grpc.credentials import credentials_of
from batten.settings.control_plane import ControlPlaneSettings
from tests.control.coordination.given import SECRET
from tests.coordination.published import core, envelope_types, sdk
from tests.serve.grpc.running import Server, running

Found = TypeVar("Found", bound=Fact)
FRAME = facts.MacpFrameObserved.TYPE
DECISION = "macp.mode.decision.v1"
PATIENCE_S = 60
OBSERVER = "observer-token"
_AGENTS = ("lead", "ann", "ben")
TOKENS = msgspec.json.encode(
    [
        {
            "token": OBSERVER,
            "sender": "macp-control-plane",
            "can_start_sessions": False,
            "is_observer": True,
            "can_manage_mode_registry": True,
        },
        {"token": "weak-token", "sender": "weak", "can_start_sessions": False},
        *({"token": f"{name}-token", "sender": name} for name in _AGENTS),
    ]
).decode()
QUICK: dict[str, Any] = {
    "runtime_bearer_token": OBSERVER,
    "session_poll_base_ms": 20,
    "session_poll_max_ms": 100,
    "session_poll_timeout_ms": 20_000,
    "stream_backoff_base_ms": 20,
    "stream_backoff_max_ms": 500,
    "runtime_circuit_breaker_reset_ms": 200,
    "runtime_request_timeout_ms": 5000,
    "session_discovery_enabled": False,
}


@contextmanager
def elsewhere(home: Path, *flags: str) -> Generator[Server]:
    with running(home, *flags, MACP_AUTH_TOKENS_JSON=TOKENS) as server:
        yield server


class Panel:
    """Agents of one session, by the published SDK."""

    def __init__(self, address: str, session_id: str = "", **options: Any) -> None:
        self.clients = {name: agent(address, name) for name in (*_AGENTS, "weak")}
        if session_id:
            options["session_id"] = session_id
        self.session = sdk.DecisionSession(self.clients["lead"], **options)

    @property
    def session_id(self) -> str:
        found: str = self.session.session_id
        return found

    def signal(self, name: str, signal_type: str, data: bytes = b"", id_: str = "") -> str:
        """Broadcast a signal about the session; its message id."""
        payload = core.SignalPayload(
            signal_type=signal_type,
            data=data,
            confidence=0.5,
            correlation_session_id=self.session_id,
        )
        envelope = sdk.build_envelope(
            mode="",
            message_type="Signal",
            session_id="",
            sender=name,
            payload=payload.SerializeToString(),
        )
        envelope.message_id = id_ or envelope.message_id
        self.clients[name].send(envelope)
        message_id: str = envelope.message_id
        return message_id

    def start(self, ttl_ms: int = 60_000) -> None:
        self.session.start(intent="decide", participants=list(_AGENTS), ttl_ms=ttl_ms)

    @property
    def state(self) -> str:
        """The session's state as the runtime tells it."""
        number = self.session.metadata().metadata.state
        return str(envelope_types.SessionState.Name(number)).removeprefix("SESSION_STATE_")

    def propose(self, number: int) -> None:
        self.session.propose(f"p{number}", f"option {number}", rationale="why not")

    def commit(self) -> None:
        self.session.commit(action="decision.selected", authority_scope="tests", reason="agreed")

    def commit_after(self, number: int) -> None:
        """A proposal and its commitment."""
        self.propose(number)
        self.commit()

    def close(self) -> None:
        for client in self.clients.values():
            client.close()


def agent(address: str, name: str) -> Any:
    auth = sdk.AuthConfig.for_bearer(f"{name}-token", expected_sender=name)
    return sdk.MacpClient(target=address, allow_insecure=True, auth=auth, default_timeout=20)


@contextmanager
def panel(address: str, session_id: str = "", **options: Any) -> Generator[Panel]:
    made = Panel(address, session_id, **options)
    try:
        yield made
    finally:
        made.close()


def transcript(server: Server, session_id: str, count: int) -> list[str]:
    """The ids of the first messages of a session, as the runtime itself tells them."""
    client = agent(server.address, "lead")
    stream = client.open_stream()
    stream.send_subscribe(session_id)
    found = [stream.read(timeout=10).message_id for _ in range(count)]
    stream.close()
    client.close()
    return found


async def describe(
    journal: Journal,
    session_id: str,
    *,
    mode: str = DECISION,
    kind: str = "rust",
    traceparent: str = "",
    tracestate: str = "",
    **more: Any,
) -> str:
    """A queued run that waits for a session, as `POST /runs` makes it; its id."""
    run_id = new_run_id()
    stream, opened = new_stream(session_id)
    await journal.create(stream, opened)
    described = facts.MacpRunDescribed(
        session_id=session_id,
        descriptor={
            "mode": "live",
            "runtime": {"kind": kind},
            "session": {
                "sessionId": session_id,
                "modeName": mode,
                "modeVersion": "1.0.0",
                "configurationVersion": "config.default",
                "ttlMs": 60_000,
                "participants": [{"id": name} for name in _AGENTS],
            },
        },
        normaliser=VERSION,
        elsewhere=kind == "rust" or UNSET,
        **more,
    )
    run = NewRun(
        run_id=run_id,
        kind="coordination",
        task_id=stream.task_id,
        session_id=stream.session_id,
        first=True,
    )
    await journal.create(run, [queued("", traceparent, {"tracestate": tracestate}), described])
    return run_id


def is_message(fact: Fact) -> bool:
    return isinstance(fact, facts.MacpFrameObserved) and fact.ordinal is not UNSET


def is_judgement(fact: Fact) -> bool:
    """Whether it is what the runtime said of a policy."""
    return isinstance(fact, facts.MacpFrameObserved) and fact.message_type in judgements.TYPES


class Observing:
    """An observer at work in this process."""

    def __init__(self, journal: SqliteJournal, observer: Observer, home: str) -> None:
        self.journal = journal
        self.home = home
        self.observer = observer

    async def followed(self, agents: Panel) -> str:
        """A run whose session is open and observed."""
        run_id = await describe(self.journal, agents.session_id)
        await in_thread(agents.start)
        await self.until(run_id, FRAME, 2)
        return run_id

    async def told(self, run_id: str) -> list[Fact]:
        return [one.data for one in await self.envelopes(run_id)]

    async def envelopes(self, run_id: str) -> list[Envelope]:
        return await envelopes(self.journal, run_id)

    async def until(self, run_id: str, type_: str, count: int = 1) -> None:
        """Until the run has so many facts of a type, beside what its policy said."""
        await self._until(run_id, type_, count, lambda fact: not is_judgement(fact))

    async def ended(self, run_id: str) -> RunRow:
        endings = frozenset({"run.finished", "run.failed", "run.cancelled"})
        async with asyncio.timeout(PATIENCE_S):
            async for _ in self.journal.follow(run_id, types=endings):
                break
        row = await self.journal.run(run_id)
        assert row is not None
        return row

    async def one(self, run_id: str, kind: type[Found]) -> Found:
        (found,) = [fact for fact in await self.told(run_id) if isinstance(fact, kind)]
        return found

    async def said(self, run_id: str) -> list[facts.MacpFrameObserved]:
        """The messages of the session; their ordinals must have no gap."""
        found = [
            fact
            for fact in await self.told(run_id)
            if isinstance(fact, facts.MacpFrameObserved) and fact.ordinal is not UNSET
        ]
        assert [one.ordinal for one in found] == list(range(1, len(found) + 1))
        return found

    async def until_said(self, run_id: str, count: int) -> None:
        """Until so many messages of the session are stored."""
        await self._until(run_id, FRAME, count, is_message)

    async def until_judged(self, run_id: str, count: int) -> None:
        """Until so many words of the session's policy are stored."""
        await self._until(run_id, FRAME, count, is_judgement)

    async def _until(
        self, run_id: str, type_: str, count: int, counts: Callable[[Fact], bool]
    ) -> None:
        found = 0
        async with asyncio.timeout(PATIENCE_S):
            async for page in self.journal.follow(run_id, types=frozenset({type_})):
                found += sum(counts(decode_fact(stored.body)) for stored in page)
                if found >= count:
                    return

    async def states(self, run_id: str) -> list[str]:
        """The states of the session, as the events tell them."""
        events = await self.events(run_id)
        return [one.data["state"] for one in events if one.type == "session.state.changed"]

    async def payload(self, run_id: str, fact: facts.MacpFrameObserved) -> bytes:
        """The bytes of a message, wherever they are kept."""
        if fact.payload is not UNSET:
            return b64decode(fact.payload)
        if fact.sealed_artifact_id is not UNSET:
            key = SealKey.load(self.home)
            return await open_sealed(self.journal, key, fact.sealed_artifact_id)
        assert fact.payload_artifact_id is not UNSET
        return await load_artifact(self.journal, fact.payload_artifact_id)

    async def heard(self, run_id: str, signal: Callable[[], str]) -> list[str]:
        """Send signals until one is stored: a watch has no backlog, and nothing tells that it
        listens. The ids of those that were sent.
        """
        sent: list[str] = []
        async with asyncio.timeout(PATIENCE_S):
            while True:
                sent.append(await in_thread(signal))
                for _ in range(10):
                    stored = await self.told(run_id)
                    if any(getattr(fact, "message_id", "") in sent for fact in stored):
                        return sent
                    await asyncio.sleep(0.02)

    async def events(self, run_id: str) -> list[CanonicalEvent]:
        return await events_of(self.journal, run_id)


async def envelopes(journal: Journal, run_id: str) -> list[Envelope]:
    found: list[Envelope] = []
    while page := await journal.read(run_id, after=len(found) - 1, limit=500):
        found += [decode(stored.body) for stored in page]
    return found


async def events_of(journal: Journal, run_id: str) -> list[CanonicalEvent]:
    """The canonical events of a run, which must be numbered without a gap."""
    state = NormaliserState()
    made = [event for one in await envelopes(journal, run_id) for event in normalise(state, one)]
    assert [event.seq for event in made] == list(range(1, len(made) + 1))
    return made


def settings_of(address: str, **changed: Any) -> ControlPlaneSettings:
    return ControlPlaneSettings(runtime_address=address, **{**QUICK, **changed})


@asynccontextmanager
async def observing(
    home: Path, address: str, *, lease_s: float = 5.0, **changed: Any
) -> AsyncGenerator[Observing]:
    """An observer of the runtime at this address; `changed` settings of the control plane."""
    settings = settings_of(address, **changed)
    journal = SqliteJournal.open(home)
    try:
        keeping = Keeping(journal, Redactor([SECRET]), partial(SealKey.load, str(home)))
        link = RuntimeLink(
            lambda: settings.runtime_address,
            partial(
                GrpcRuntime,
                credentials=credentials_of(settings),
                dialling=Dialling(timeout_s=settings.runtime_request_timeout_ms / 1000),
            ),
            Breaker(
                settings.runtime_circuit_breaker_threshold,
                settings.runtime_circuit_breaker_reset_ms / 1000,
            ),
            "rust",
        )
        observer = Observer(keeping, link, settings, lease_s=lease_s)
        async with asyncio.TaskGroup() as group:
            duty = group.create_task(observer.run())
            try:
                yield Observing(journal, observer, str(home))
            finally:
                duty.cancel()
        await link.close()
    finally:
        journal.close()


async def in_thread(work: Any, *args: Any) -> Any:
    """Agents block their thread."""
    return await asyncio.to_thread(work, *args)
