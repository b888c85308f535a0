"""A runtime in this process, and those who attend it: each envelope that is read is checked."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec

from batten.embedded import hosted
from batten.protocols.maestro.hosted import (
    AskedCapabilities,
    Envelope,
    RuntimeSnapshot,
    SubscribeAsk,
    SubscriptionSnapshot,
    encode,
)
from batten.protocols.maestro.vocabulary import OPERATIONS, Notification, RequestType, Role
from batten.runner.identity import Identity
from batten.serve.maestro.runtime import Runtime
from batten.session.history import envelopes_of
from tests.agent.stage import Stage, Statement, say
from tests.contract.order import check_order
from tests.maestro.schemas import PRESENT, Json, Published, checked
from tests.maestro.shapes import problem
from tests.runner.remote import RemoteStage, hosting_remote

PATIENCE_S = 60
STARTED_AT = 1776902400.0
RUNNER = "mrs_conformance"
PLAIN = ("--sandbox", "none")
DONE: list[Statement] = [say("Done."), {"kind": "end", "reason": "complete"}]
PUBLISHED = Published() if PRESENT else None


def json_of(value: Any) -> Json:
    found: Json = msgspec.json.decode(msgspec.json.encode(value))
    return found


def valid(name: str, value: Any) -> Json:
    """A value as it is sent, of a shape that is published."""
    sent = json_of(value)
    if PUBLISHED is not None:
        PUBLISHED.check_named(f"HeadlessRuntime{name}Schema", sent)
    return sent


def identity(stage: Stage, **more: Any) -> Identity:
    return Identity(
        runner_session_id=RUNNER,
        owner_instance_id="owner_1",
        workspace_root=str(stage.workspace),
        workspace_id="ws_conformance",
        agent_run_id="run_conformance",
        **more,
    )


def prepared(stage: Stage) -> Path:
    """The workspace as the suite wants it; a file outside of it."""
    (stage.workspace / "notes.md").write_text("alpha\nbeta\ngamma\n")
    outside = stage.directory / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "secret.txt").write_text("a secret\n")
    return outside / "secret.txt"


@asynccontextmanager
async def hosting(
    stage: Stage,
    *frames: Sequence[Statement],
    model: str | None = None,
    env: Mapping[str, str] | None = None,
    flags: Sequence[str] = PLAIN,
    runner: Identity | None = None,
    is_whole: bool = True,
    now: Callable[[], float] = lambda: STARTED_AT,
    **more: Any,
) -> AsyncGenerator[Runtime, None]:
    """A runtime that plays these frames in the stage's workspace. What it stored is in order,
    unless a run was given up and is not whole. A `RemoteStage` has it in a runner's process.

    Its clock stands still unless another is given: what ought to be said at once is not said
    because somebody expired.
    """
    named = stage.scenario(*frames) if model is None and frames else model
    runner = runner or identity(stage)
    if isinstance(stage, RemoteStage):
        async with hosting_remote(stage, named or "", runner, flags, env, **more) as remote:
            yield cast(Runtime, remote)
    else:
        async with hosted(
            model=named or "",
            env={"BATTEN_HOME": str(stage.home), "HOME": str(stage.directory), **(env or {})},
            flags=flags,
            runner=runner,
            now=now,
            **more,
        ) as runtime:
            yield runtime
    journal = stage.journal()
    for run in await journal.runs():
        if is_whole:
            check_order([one async for one in envelopes_of(journal, run.run_id)])
        assert await journal.verify(run.run_id) == []
    journal.close()


async def join(
    runtime: Runtime,
    *requests: RequestType,
    role: Role = "controller",
    raw: bool = False,
    **more: Any,
) -> SubscriptionSnapshot:
    """Subscribe: a controller uses everything, and answers these classes of requests."""
    asked = AskedCapabilities(
        server_requests=requests,
        utility_operations=OPERATIONS if role == "controller" else (),
        raw_agent_events=raw,
    )
    snapshot = await runtime.subscribe(SubscribeAsk(role=role, capabilities=asked, **more))
    valid("SubscriptionSnapshot", snapshot)
    return snapshot


class Shim:
    """One subscription: says messages, and reads what is said."""

    def __init__(
        self,
        runtime: Runtime,
        stream: AsyncGenerator[Envelope, None],
        subscribed: SubscriptionSnapshot | None,
    ) -> None:
        self.runtime = runtime
        self._stream = stream
        self.subscribed = subscribed
        self.heard: list[Json] = []
        """Envelopes."""

    @property
    def connection_id(self) -> str:
        assert self.subscribed is not None
        return self.subscribed.connection_id

    @property
    def subscription_id(self) -> str:
        assert self.subscribed is not None
        return self.subscribed.subscription_id

    async def say(self, kind: str, **fields: Any) -> None:
        message = {"type": kind, **fields}
        async with asyncio.timeout(PATIENCE_S):
            await self.runtime.message(message, subscription_id=self.subscription_id)

    async def read(self) -> Json:
        """The next envelope; `StopAsyncIteration` when there are no more."""
        async with asyncio.timeout(PATIENCE_S):
            envelope = await anext(self._stream)
        sent: Json = msgspec.json.decode(encode(envelope))
        if PUBLISHED is not None:
            PUBLISHED.check_named("HeadlessRuntimeStreamEnvelopeSchema", sent)
        if sent["type"] == "message":
            assert problem(sent["message"]) is None, problem(sent["message"])
            checked(sent["message"])
        self.heard.append(sent)
        return sent

    async def hear(self, kind: str, **fields: Any) -> Json:
        """Read until a message of this type with these fields comes."""
        async with asyncio.timeout(PATIENCE_S):  # heartbeats come in any case
            while True:
                message = (await self.read()).get("message")
                if message and message["type"] == kind and fields.items() <= message.items():
                    return dict(message)

    async def see(self, **fields: Any) -> Json:
        """Read until a snapshot, or a reset, shows this state."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                snapshot = (await self.read()).get("snapshot")
                if snapshot and fields.items() <= snapshot["state"].items():
                    return dict(snapshot)

    async def rest(self) -> None:
        """Read to the end."""
        while True:
            try:
                await self.read()
            except StopAsyncIteration:
                return

    @property
    def messages(self) -> list[Json]:
        return [one["message"] for one in self.heard if one["type"] == "message"]

    def of(self, kind: str, **fields: Any) -> list[Json]:
        return [
            one for one in self.messages if one["type"] == kind and fields.items() <= one.items()
        ]

    @property
    def cursors(self) -> list[int]:
        """Of what was said, a heartbeat apart; a reset begins anew."""
        return [
            one["cursor"] if one["type"] == "message" else one["snapshot"]["cursor"]
            for one in self.heard
            if one["type"] != "heartbeat"
        ]

    async def prompt(self, text: str = "go") -> list[Json]:
        """All messages up to the end of the response."""
        before = len(self.messages)
        await self.say("prompt", content=text)
        await self.hear("response_end")
        return self.messages[before:]

    async def answer(self, request: Json, **fields: Any) -> None:
        await self.say(
            "server_request_response",
            request_id=request["request_id"],
            request_type=request["request_type"],
            **fields,
        )


@asynccontextmanager
async def attending(
    runtime: Runtime, *requests: RequestType, role: Role = "controller", **more: Any
) -> AsyncGenerator[Shim, None]:
    """A subscription that is read while the block lasts."""
    subscribed = await join(runtime, *requests, role=role, **more)
    async with aclosing(runtime.attach(subscribed.subscription_id)) as stream:
        yield Shim(runtime, stream, subscribed)


@asynccontextmanager
async def looking_on(
    runtime: Runtime,
    cursor: int | None = None,
    opt_out: tuple[Notification, ...] | None = None,
) -> AsyncGenerator[Shim, None]:
    """A stream without a subscription."""
    async with aclosing(runtime.attach(cursor=cursor, opt_out_notifications=opt_out)) as stream:
        yield Shim(runtime, stream, None)


async def replay(runtime: Runtime, cursor: int = 0) -> Shim:
    """All that was said and can still be read after a cursor, up to now."""
    until = runtime.state().cursor
    async with looking_on(runtime, cursor) as reader:
        while not reader.cursors or reader.cursors[-1] < until:
            await reader.read()
        return reader


def is_valid(snapshot: RuntimeSnapshot) -> Json:
    return valid("Snapshot", snapshot)
