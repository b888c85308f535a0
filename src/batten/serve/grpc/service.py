"""The RPCs of the runtime, as methods that take and return protobuf messages."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import Any

from msgspec.structs import replace

from batten.contract.errors import BattenError
from batten.contract.tracing import current_traceparent, parse_traceparent
from batten.control.coordination.answers import Answer, Heard, Lifecycle
from batten.control.coordination.ids import SURFACE
from batten.control.coordination.registries import Registries
from batten.control.coordination.runtime import KEPT_ENDED, Runtime
from batten.coordination.envelope import (
    MAX_PAYLOAD_BYTES,
    RUNTIME,
    VERSION,
    Message,
    check_shape,
    session_of,
)
from batten.coordination.rejection import Rejection, forbidden, not_found
from batten.coordination.session import Session
from batten.journal.contract import SessionRow
from batten.protocols.macp.judgements import ASKED_BY
from batten.serve.grpc import wire
from batten.serve.grpc.counts import RuntimeCounts
from batten.serve.grpc.identity import Authenticator, Identity, ServerIdentity
from batten.serve.grpc.listing import SessionList
from batten.serve.grpc.rates import Rates
from batten.serve.grpc.status import abort, internal
from batten.serve.grpc.streams import SessionStream

_log = logging.getLogger("batten.coordination")
_SUSPENSIONS = "batten-suspensions"
"""The metadata by which a stream asks to be told of them: clients that count what they are sent, as
the SDKs do, would count these too, and miss messages when they resume.
"""

Record = Callable[[str, str, str, str], AbstractContextManager[object]]
"""Takes who does what to what: the sender, the action, the resource and its id."""


def ignore(
    sender: str, action: str, resource: str, resource_id: str
) -> AbstractContextManager[object]:
    """Record nothing."""
    return nullcontext()


class RuntimeService:
    """All RPCs. A call that was taken is carried out even if its client leaves."""

    def __init__(
        self,
        runtime: Runtime,
        authenticator: Authenticator,
        rates: Rates,
        group: asyncio.TaskGroup,
        *,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        record: Record = ignore,
    ) -> None:
        """`record` is entered around each change of the registries."""
        self._record = record
        self._runtime = runtime
        self._authenticator = authenticator
        self._rates = rates
        self._group = group
        self._max_payload_bytes = max_payload_bytes
        self._list = SessionList(runtime)
        self.counts = RuntimeCounts(runtime)

    def identify(self, context: Any) -> Identity:
        """Who calls. Raises `UNAUTHENTICATED`."""
        metadata: dict[str, Any] = dict(context.invocation_metadata() or ())
        return self._authenticator.identify(metadata, context.peer())

    # Messages

    async def Initialize(self, request: Any, context: Any) -> Any:  # noqa: N802
        versions = list(request.supported_protocol_versions)
        if not versions:
            return await abort(
                context, Rejection("INVALID_REQUEST", "supported_protocol_versions is empty")
            )
        if VERSION not in versions:
            text = f"UNSUPPORTED_PROTOCOL_VERSION: this runtime speaks {VERSION}"
            return await abort(context, Rejection("UNSUPPORTED_PROTOCOL_VERSION", text))
        registries = self._runtime.registries
        return wire.initialized(
            registries.modes.names, policies_fixed=registries.policies.read_only
        )

    async def Send(self, request: Any, context: Any) -> Any:  # noqa: N802
        if not request.HasField("envelope"):
            return await abort(context, Rejection("INVALID_REQUEST", "the envelope is missing"))
        envelope = request.envelope
        ids = (envelope.session_id, envelope.message_id)
        if envelope.message_type == "SessionStart":
            _enter_trace(context)
        try:
            answer = await self._send(self._read(envelope), self.identify(context))
        except Rejection as rejection:
            return wire.core.SendResponse(ack=wire.nack(rejection, *ids))
        except BattenError as error:
            _log.error("message %s failed: %s", envelope.message_id, error, exc_info=error)
            return wire.core.SendResponse(ack=wire.nack(internal(), *ids))
        return wire.core.SendResponse(ack=wire.ack(answer, *ids))

    def _read(self, envelope: Any) -> Message:
        message = wire.read_message(envelope)
        check_shape(message, self._max_payload_bytes)
        return message

    async def _send_envelope(self, envelope: Any, identity: Identity) -> Answer:
        return await self._send(self._read(envelope), identity)

    async def _send(self, message: Message, identity: Identity) -> Answer:
        """Carry a message out. Raises `Rejection`."""
        began, is_accepted = time.perf_counter(), True
        try:
            self._check(message, identity)
            if not message.sender:
                message = replace(message, sender=identity.sender)
            if (taken := self._runtime.take(message)) is not None:
                return await taken.answer()
            sending = self._runtime.send(message, max_open=identity.max_open_sessions)
            return await self._carry_out(sending)
        except Rejection:
            is_accepted = False
            raise
        finally:
            self.counts.answered(message, time.perf_counter() - began, is_accepted=is_accepted)

    def _check(self, message: Message, identity: Identity) -> None:
        """Raise `Rejection` unless this sender may send such a message now."""
        if message.sender not in ("", identity.sender):
            raise Rejection(
                "UNAUTHENTICATED", f"the envelope names {message.sender}, not {identity.sender}"
            )
        starts = message.message_type == "SessionStart"
        identity.check_mode(message.mode.strip(), starts=starts)
        self._rates.check(identity.sender, starts=starts)

    async def _carry_out(self, work: Awaitable[Answer]) -> Answer:
        """Await work that goes on when the client leaves. Raises its `BattenError`."""

        async def outcome() -> Answer | BattenError:
            try:
                return await work
            except BattenError as error:
                return error  # of this call alone: raised in the group it would end the server

        result = await asyncio.shield(self._group.create_task(outcome()))
        if isinstance(result, BattenError):
            raise result
        return result

    async def StreamSession(self, requests: AsyncIterator[Any], context: Any) -> None:  # noqa: N802
        _enter_trace(context)
        try:
            identity = self.identify(context)
            # Clients that wait for the headers send their first frame after them.
            await context.send_initial_metadata(())
            stream = SessionStream(
                self._runtime,
                identity,
                context,
                self._send_envelope,
                self._view,
                with_judgements=identity.is_observer and _asks_for(ASKED_BY, context),
                with_suspensions=_asks_for(_SUSPENSIONS, context),
            )
            with self.counts.stream():
                fatal = await stream.run(requests)
        except Rejection as rejection:
            fatal = rejection
        except BaseExceptionGroup as errors:
            fatal = _first_fault(errors)
        if fatal is not None:
            await abort(context, fatal)

    async def _view(self, session_id: str, identity: Identity) -> int:
        return (await self._visible(session_id, identity)).last_frame

    async def _visible(self, session_id: str, identity: Identity) -> Session:
        session = await self._runtime.find(session_id)
        if session is None:
            raise not_found(session_id)
        if not identity.may_see(session):
            raise forbidden(f"{identity.sender} does not take part in the session")
        return session

    # Sessions

    async def GetSession(self, request: Any, context: Any) -> Any:  # noqa: N802
        session = await self._visible(request.session_id, self.identify(context))
        return wire.core.GetSessionResponse(metadata=wire.metadata(session))

    async def ListSessions(self, request: Any, context: Any) -> Any:  # noqa: N802
        found, more = await self._list.page(
            self.identify(context), request.page_size, request.page_token
        )
        metadata = [wire.metadata(one) for one in found]
        return wire.core.ListSessionsResponse(sessions=metadata, next_page_token=more)

    async def _recall(self) -> None:
        """Load the sessions that ended last, also before this process. Those that are live and not
        held here are left to their runtime: finding them would claim them.
        """
        journal, ended = self._runtime.journal, list[SessionRow]()
        for row in await journal.sessions(limit=KEPT_ENDED, surface=SURFACE):
            run = None if row.last_run_id is None else await journal.run(row.last_run_id)
            if run is not None and run.outcome is not None:
                ended.append(row)
        await self._list.load(ended)

    async def CancelSession(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._manage(
            self._runtime.cancel, request, context, wire.core.CancelSessionResponse
        )

    async def SuspendSession(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._manage(
            self._runtime.suspend, request, context, wire.core.SuspendSessionResponse
        )

    async def ResumeSession(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._manage(
            self._runtime.resume, request, context, wire.core.ResumeSessionResponse
        )

    async def _manage(
        self, change: Callable[..., Any], request: Any, context: Any, response: Any
    ) -> Any:
        identity = self.identify(context)
        session_id = request.session_id
        try:
            answer = await self._carry_out(change(session_id, identity.sender, request.reason))
        except Rejection as rejection:
            if rejection.macp_code != "SESSION_NOT_OPEN":
                raise
            return response(ack=wire.nack(rejection, session_id))
        return response(ack=wire.ack(answer, session_id))

    # Registries

    async def GetManifest(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.agent_id not in ("", RUNTIME):
            raise Rejection("AGENT_NOT_FOUND", f"no agent {request.agent_id!r} is hosted here")
        return wire.manifest(self._runtime.registries.modes.names)

    async def ListModes(self, request: Any, context: Any) -> Any:  # noqa: N802
        modes = [wire.mode_descriptor(one) for one in self._runtime.registries.modes.standard]
        return wire.core.ListModesResponse(modes=modes)

    async def ListExtModes(self, request: Any, context: Any) -> Any:  # noqa: N802
        modes = [wire.mode_descriptor(one) for one in self._runtime.registries.modes.extension]
        return wire.core.ListExtModesResponse(modes=modes)

    async def RegisterExtMode(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller, registries = self._managed(context)
        mode = wire.read_mode(request.mode_descriptor)
        try:
            with self._recording(caller, "mode.registered", "mode", mode.mode):
                registries.change_modes(lambda now: now.register(mode))
        except Rejection as rejection:
            return wire.core.RegisterExtModeResponse(ok=False, error=rejection.message)
        return wire.core.RegisterExtModeResponse(ok=True)

    async def UnregisterExtMode(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller, registries = self._managed(context)
        try:
            with self._recording(caller, "mode.unregistered", "mode", request.mode):
                registries.change_modes(lambda now: now.unregister(request.mode))
        except Rejection as rejection:
            return wire.core.UnregisterExtModeResponse(ok=False, error=rejection.message)
        return wire.core.UnregisterExtModeResponse(ok=True)

    async def PromoteMode(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller, registries = self._managed(context)
        name = request.promoted_mode_name.strip() or request.mode
        try:
            with self._recording(caller, "mode.promoted", "mode", name):
                target = request.promoted_mode_name
                registries.change_modes(lambda now: now.promote(request.mode, target))
        except Rejection as rejection:
            return wire.core.PromoteModeResponse(ok=False, error=rejection.message)
        return wire.core.PromoteModeResponse(ok=True, mode=name)

    async def RegisterPolicy(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller, registries = self._managed(context)
        policy = wire.read_policy(request.policy_descriptor, self._runtime.clock())
        try:
            with self._recording(caller, "policy.registered", "policy", policy.policy_id):
                registries.change_policies(lambda now: now.register(policy))
        except Rejection as rejection:
            _raise_read_only(rejection)
            return wire.policies.RegisterPolicyResponse(ok=False, error=rejection.message)
        return wire.policies.RegisterPolicyResponse(ok=True)

    async def UnregisterPolicy(self, request: Any, context: Any) -> Any:  # noqa: N802
        caller, registries = self._managed(context)
        try:
            with self._recording(caller, "policy.unregistered", "policy", request.policy_id):
                registries.change_policies(lambda now: now.unregister(request.policy_id))
        except Rejection as rejection:
            _raise_read_only(rejection)
            return wire.policies.UnregisterPolicyResponse(ok=False, error=rejection.message)
        return wire.policies.UnregisterPolicyResponse(ok=True)

    async def GetPolicy(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.identify(context)
        policy = self._runtime.registries.policies.find(request.policy_id)
        if policy is None or not request.policy_id:
            raise Rejection("UNKNOWN_POLICY_VERSION", f"there is no policy {request.policy_id!r}")
        return wire.policies.GetPolicyResponse(policy_descriptor=wire.policy_descriptor(policy))

    async def ListPolicies(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.identify(context)
        found = self._runtime.registries.policies.of_mode(request.mode)
        descriptors = [wire.policy_descriptor(one) for one in found]
        return wire.policies.ListPoliciesResponse(descriptors=descriptors)

    async def ListRoots(self, request: Any, context: Any) -> Any:  # noqa: N802
        return wire.core.ListRootsResponse()

    def _managed(self, context: Any) -> tuple[Identity, Registries]:
        """The caller and the registries. Raises `FORBIDDEN` if it may not change them."""
        identity = self.identify(context)
        if not identity.can_manage_mode_registry:
            raise forbidden(f"{identity.sender} may not change modes and policies")
        return identity, self._runtime.registries

    def _recording(
        self, caller: Identity, action: str, resource: str, resource_id: str
    ) -> AbstractContextManager[object]:
        """Record a change, unless the caller does, who knows whose it is."""
        if isinstance(caller, ServerIdentity):
            return nullcontext()
        return self._record(caller.sender, action, resource, resource_id)

    # Watches

    async def WatchSessions(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        identity = self.identify(context)
        await self._recall()  # before the watch has a buffer that could overflow
        watching = self._runtime.lifecycle.subscribe()
        try:
            await context.send_initial_metadata(())
            told: set[str] = set()
            for session in filter(identity.may_see, self._runtime.known()):
                told.add(session.session_id)
                event = Lifecycle("CREATED", session, session.started_at_ms)
                yield wire.lifecycle_event(event)
            async with aclosing(watching.values()) as values:
                async for event in values:
                    is_news = event.kind != "CREATED" or event.session.session_id not in told
                    if is_news and identity.may_see(event.session):
                        yield wire.lifecycle_event(event)
        finally:
            watching.close()

    async def WatchSignals(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        identity = self.identify(context)
        watching = self._runtime.signals.subscribe()
        try:
            # The headers tell the client that it listens from now on.
            await context.send_initial_metadata(())
            async with aclosing(watching.values()) as values:
                async for heard in values:
                    if self._may_hear(identity, heard.message):
                        yield _signal(heard)
        finally:
            watching.close()

    def _may_hear(self, identity: Identity, signal: Message) -> bool:
        """Whether the caller may hear a Signal or Progress: any, unless it names a session here
        that the caller may not see.
        """
        session = self._runtime.peek(session_of(signal))
        return session is None or identity.sender == signal.sender or identity.may_see(session)

    async def WatchModeRegistry(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        async with aclosing(self._changes("modes")) as changes:
            async for at_ms in changes:
                change = wire.core.RegistryChanged(registry="modes", observed_at_unix_ms=at_ms)
                yield wire.core.WatchModeRegistryResponse(change=change)

    async def WatchPolicies(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        async with aclosing(self._changes("policies")) as changes:
            async for at_ms in changes:
                found = self._runtime.registries.policies.of_mode()
                yield wire.policies.WatchPoliciesResponse(
                    descriptors=[wire.policy_descriptor(one) for one in found],
                    observed_at_unix_ms=at_ms,
                )

    async def WatchRoots(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        change = wire.core.RootsChanged(observed_at_unix_ms=self._runtime.clock())
        yield wire.core.WatchRootsResponse(change=change)
        await asyncio.Event().wait()

    async def _changes(self, registry: str) -> AsyncGenerator[int]:
        """Now, and whenever the registry has changed."""
        watching = self._runtime.registries.changed.subscribe()
        try:
            yield self._runtime.clock()
            async with aclosing(watching.values()) as values:
                async for name in values:
                    if name == registry:
                        yield self._runtime.clock()
        finally:
            watching.close()


def _asks_for(what: str, context: Any) -> bool:
    return any(name == what for name, _ in context.invocation_metadata() or ())


def _enter_trace(context: Any) -> None:
    """Let what is done for this call belong to the span of its caller, if that names one."""
    metadata: dict[str, Any] = dict(context.invocation_metadata() or ())
    said = metadata.get("traceparent", "")
    if isinstance(said, str) and (caller := parse_traceparent(said)) is not None:
        current_traceparent.set(str(caller))


def _signal(heard: Heard) -> Any:
    return wire.core.WatchSignalsResponse(
        envelope=wire.write_envelope(heard.message), sender_authenticated=heard.is_authenticated
    )


def _raise_read_only(rejection: Rejection) -> None:
    if rejection.macp_code == "REGISTRY_READ_ONLY":
        raise rejection


def _first_fault(errors: BaseExceptionGroup[Any]) -> Rejection:
    for error in errors.exceptions:
        if isinstance(error, Rejection):
            return error
        if isinstance(error, asyncio.CancelledError):
            raise error
    _log.error("a stream failed", exc_info=errors)
    return internal()
