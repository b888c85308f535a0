"""A runtime over gRPC, as its observer reads it. Loading this module loads gRPC."""

import logging
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from importlib import import_module
from typing import Any, cast

import msgspec
from msgspec import Struct

from batten import __version__
from batten.contract.facts.macp import SessionState
from batten.control.observer.contract import (
    FAILED_PRECONDITION,
    NO_TRACE,
    UNAUTHENTICATED,
    UNIMPLEMENTED,
    Frame,
    Hello,
    Lifecycle,
    LifecycleKind,
    Manifest,
    ModeInfo,
    Policy,
    Root,
    RuntimeFault,
    Said,
    SessionSnapshot,
    StreamError,
    Trace,
    Verdict,
)
from batten.protocols.macp.judgements import ASKED_BY
from batten.serve.grpc.credentials import Credentials, Metadata

_UNCONNECTED = "failed to connect to all addresses"
"""How gRPC begins to say that no call was sent."""

grpc: Any = import_module("grpc")
aio: Any = import_module("grpc.aio")
core: Any = import_module("macp.v1.core_pb2")
envelopes: Any = import_module("macp.v1.envelope_pb2")
policy_types: Any = import_module("macp.v1.policy_pb2")
stubs: Any = import_module("macp.v1.core_pb2_grpc")

_log = logging.getLogger("batten.observer")
_CLIENT = "macp-control-plane"
_VERSIONS = ("1.0",)
_LARGEST_MESSAGE = 64 * 1024 * 1024
_OPTIONS = (
    # Otherwise clients of one address share its connections, and a new one the pause after a
    # failed attempt of another.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", _LARGEST_MESSAGE),
    ("grpc.initial_reconnect_backoff_ms", 200),
    # Despite its name, how long an attempt may take: connecting over TLS is some round trips.
    ("grpc.min_reconnect_backoff_ms", 3000),
    ("grpc.max_reconnect_backoff_ms", 2000),
)
_STATES: dict[int, SessionState] = {
    number: cast(SessionState, name.removeprefix("SESSION_STATE_"))
    for name, number in envelopes.SessionState.items()
    if not name.endswith("_UNSPECIFIED")
}


class Dialling(Struct, frozen=True, kw_only=True):
    """How to reach a runtime."""

    timeout_s: float
    """For each call that is no stream."""
    tls: bool = False
    roots: bytes = b""
    """Certificates to trust, in PEM; empty for the usual ones."""


class GrpcRuntime:
    """Implements `RuntimeClient`. Never sends a message of a session."""

    def __init__(self, address: str, credentials: Credentials, dialling: Dialling) -> None:
        self.address = address
        self._credentials = credentials
        self._timeout_s = dialling.timeout_s
        if dialling.tls:
            secure = grpc.ssl_channel_credentials(dialling.roots or None)
            self._channel = aio.secure_channel(address, secure, options=_OPTIONS)
        else:
            self._channel = aio.insecure_channel(address, options=_OPTIONS)
        self._stub = stubs.MACPRuntimeServiceStub(self._channel)

    async def close(self) -> None:
        await self._channel.close()

    # Sessions

    async def initialize(self, trace: Trace = NO_TRACE) -> Hello:
        asked = core.InitializeRequest(
            supported_protocol_versions=_VERSIONS,
            client_info=core.ClientInfo(name=_CLIENT, version=__version__),
        )
        told = await self._ask(self._stub.Initialize, asked, trace)
        return Hello(
            name=told.runtime_info.name,
            version=told.runtime_info.version,
            modes=tuple(told.supported_modes),
            capabilities=_as_json(told.capabilities),
        )

    async def get_session(self, session_id: str, trace: Trace = NO_TRACE) -> SessionSnapshot:
        asked = core.GetSessionRequest(session_id=session_id)
        told = await self._ask(self._stub.GetSession, asked, trace)
        return _snapshot(told.metadata)

    async def cancel_session(self, session_id: str, reason: str) -> None:
        asked = core.CancelSessionRequest(session_id=session_id, reason=reason)
        _check(await self._ask(self._stub.CancelSession, asked))

    async def suspend_session(self, session_id: str, reason: str) -> None:
        asked = core.SuspendSessionRequest(session_id=session_id, reason=reason)
        _check(await self._ask(self._stub.SuspendSession, asked))

    async def resume_session(self, session_id: str, reason: str) -> None:
        asked = core.ResumeSessionRequest(session_id=session_id, reason=reason)
        _check(await self._ask(self._stub.ResumeSession, asked))

    async def transcript(
        self, session_id: str, after: int, *, live: bool, trace: Trace = NO_TRACE
    ) -> AsyncGenerator[Frame, None]:
        metadata = (*await self._metadata(trace), (ASKED_BY, "1"))
        call = self._stub.StreamSession(metadata=metadata)
        try:
            subscribe = core.StreamSessionRequest(
                subscribe_session_id=session_id, after_sequence=after
            )
            await call.write(subscribe)
            if not live:
                await call.done_writing()
            async for response in call:
                if response.HasField("error"):
                    yield _stream_error(response.error)
                elif response.envelope.session_id == session_id:
                    yield _said(response.envelope)
        except aio.AioRpcError as error:
            raise self._fault(error) from error
        except aio.UsageError as error:  # the call ended while we wrote
            raise await self._why(call) from error
        finally:
            call.cancel()

    async def watch_sessions(self) -> AsyncGenerator[Lifecycle, None]:
        asked = core.WatchSessionsRequest()
        async with aclosing(self._read(self._stub.WatchSessions, asked)) as responses:
            async for response in responses:
                event = response.event
                kind = core.SessionLifecycleEvent.EventType.Name(event.event_type)
                if kind.endswith("_UNSPECIFIED") or event.session.state not in _STATES:
                    continue
                named = cast(LifecycleKind, kind.removeprefix("EVENT_TYPE_"))
                yield Lifecycle(named, _snapshot(event.session))

    async def watch_signals(self) -> AsyncGenerator[Said, None]:
        asked = core.WatchSignalsRequest()
        async with aclosing(self._read(self._stub.WatchSignals, asked)) as responses:
            async for response in responses:
                yield _said(response.envelope, correlation=_correlation(response.envelope))

    # Registries

    async def manifest(self) -> Manifest:
        told = (await self._ask(self._stub.GetManifest, core.GetManifestRequest())).manifest
        return Manifest(
            agent_id=told.agent_id,
            title=told.title,
            description=told.description,
            supported_modes=list(told.supported_modes),
            metadata=dict(told.metadata),
        )

    async def modes(self) -> list[ModeInfo]:
        """Standard modes, then extensions where the runtime tells them."""
        told = list((await self._ask(self._stub.ListModes, core.ListModesRequest())).modes)
        try:
            asked = core.ListExtModesRequest()
            told += (await self._ask(self._stub.ListExtModes, asked)).modes
        except RuntimeFault as fault:
            if fault.grpc_code != UNIMPLEMENTED:
                raise
        return [_mode(one) for one in told]

    async def roots(self) -> list[Root]:
        told = await self._ask(self._stub.ListRoots, core.ListRootsRequest())
        return [Root(one.uri, one.name) for one in told.roots]

    async def policies(self, mode: str) -> list[Policy]:
        asked = policy_types.ListPoliciesRequest(mode=mode)
        told = await self._ask(self._stub.ListPolicies, asked)
        return [_policy(one) for one in told.descriptors]

    async def policy(self, policy_id: str) -> Policy:
        asked = policy_types.GetPolicyRequest(policy_id=policy_id)
        return _policy((await self._ask(self._stub.GetPolicy, asked)).policy_descriptor)

    async def register_policy(self, policy: Policy) -> Verdict:
        described = policy_types.PolicyDescriptor(
            policy_id=policy.policy_id,
            mode=policy.mode,
            description=policy.description,
            rules=msgspec.json.encode(policy.rules).decode(),
            schema_version=policy.schema_version,
        )
        asked = policy_types.RegisterPolicyRequest(policy_descriptor=described)
        told = await self._ask(self._stub.RegisterPolicy, asked)
        return Verdict(told.ok, told.error)

    async def unregister_policy(self, policy_id: str) -> Verdict:
        asked = policy_types.UnregisterPolicyRequest(policy_id=policy_id)
        told = await self._ask(self._stub.UnregisterPolicy, asked)
        return Verdict(told.ok, told.error)

    # Calls

    async def _metadata(self, trace: Trace) -> Metadata:
        found = await self._credentials.metadata()
        if trace.parent:
            found = (*found, ("traceparent", trace.parent))
        if trace.parent and trace.state:
            found = (*found, ("tracestate", trace.state))
        return found

    async def _ask(
        self, method: Callable[..., Awaitable[Any]], request: Any, trace: Trace = NO_TRACE
    ) -> Any:
        metadata = await self._metadata(trace)
        try:
            return await method(request, timeout=self._timeout_s, metadata=metadata)
        except aio.AioRpcError as error:
            raise self._fault(error) from error

    async def _read(
        self, method: Callable[..., AsyncIterator[Any]], request: Any
    ) -> AsyncGenerator[Any, None]:
        call: Any = method(request, metadata=await self._metadata(NO_TRACE))
        try:
            async for response in call:
                yield response
        except aio.AioRpcError as error:
            raise self._fault(error) from error
        finally:
            call.cancel()

    async def _why(self, call: Any) -> RuntimeFault:
        return self._told(await call.code(), await call.details())

    def _fault(self, error: Any) -> RuntimeFault:
        return self._told(error.code(), error.details())

    def _told(self, status: Any, details: str | None) -> RuntimeFault:
        code: int = status.value[0]
        if code == UNAUTHENTICATED:
            self._credentials.refused()
        text = details or f"the runtime answered {status.name}"
        return RuntimeFault(code, text, was_sent=not text.startswith(_UNCONNECTED))


def _check(told: Any) -> None:
    """Raise if the runtime did not do it."""
    if not told.ack.ok:
        error = told.ack.error
        raise RuntimeFault(FAILED_PRECONDITION, error.message or f"refused: {error.code}")


def _snapshot(told: Any) -> SessionSnapshot:
    return SessionSnapshot(
        session_id=told.session_id,
        state=_STATES.get(told.state, "OPEN"),
        mode=told.mode,
        mode_version=told.mode_version,
        configuration_version=told.configuration_version,
        policy_version=told.policy_version,
        initiator=told.initiator,
        participants=tuple(told.participants),
        started_at_unix_ms=told.started_at_unix_ms,
        expires_at_unix_ms=told.expires_at_unix_ms,
        context_id=told.context_id,
        extension_keys=tuple(told.extension_keys),
    )


def _said(envelope: Any, *, correlation: str = "") -> Said:
    return Said(
        session_id=envelope.session_id,
        mode=envelope.mode,
        message_id=envelope.message_id,
        message_type=envelope.message_type,
        sender=envelope.sender,
        timestamp_unix_ms=envelope.timestamp_unix_ms,
        payload=envelope.payload,
        correlation=correlation,
    )


def _correlation(envelope: Any) -> str:
    """The session that a signal names; empty for anything else."""
    if envelope.message_type != "Signal":
        return ""
    payload = core.SignalPayload()
    try:
        payload.ParseFromString(envelope.payload)
    except Exception:  # protobuf's DecodeError; what others send must not end the watch
        return ""
    named: str = payload.correlation_session_id
    return named


def _stream_error(told: Any) -> StreamError:
    try:
        details = told.details.decode()
    except UnicodeDecodeError:
        details = b64encode(told.details).decode()
    return StreamError(
        code=told.code, message=told.message, message_id=told.message_id, details=details
    )


def _mode(told: Any) -> ModeInfo:
    return ModeInfo(
        mode=told.mode,
        mode_version=told.mode_version,
        title=told.title,
        description=told.description,
        determinism_class=told.determinism_class,
        participant_model=told.participant_model,
        message_types=list(told.message_types),
        terminal_message_types=list(told.terminal_message_types),
        schema_uris=dict(told.schema_uris),
    )


def _policy(told: Any) -> Policy:
    try:
        rules = msgspec.json.decode(told.rules or "{}", type=dict[str, Any])
    except msgspec.MsgspecError:
        _log.warning("the rules of policy %s are no JSON object", told.policy_id)
        rules = {}
    return Policy(
        policy_id=told.policy_id,
        mode=told.mode,
        description=told.description,
        rules=rules,
        schema_version=told.schema_version,
        registered_at_unix_ms=told.registered_at_unix_ms,
    )


def _as_json(message: Any) -> dict[str, Any]:
    to_dict: Any = import_module("google.protobuf.json_format").MessageToDict
    value: dict[str, Any] = to_dict(message)
    return value
