"""A participant's seat in a session: it sees the transcript and acts through tools."""

from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import UNSET

from batten.contract.facts import AssistantMessageComplete, Fact, MacpSessionChanged
from batten.contract.facts.tool import ToolKind
from batten.contract.ids import new_request_id, to_uuid
from batten.control.coordination import store
from batten.control.coordination.answers import Answer, Heard
from batten.control.coordination.runtime import Runtime
from batten.coordination.acts import Act, acts_of, parameters_of, payload_of
from batten.coordination.engine import Accepted, Changed
from batten.coordination.envelope import Message
from batten.coordination.payloads import SIGNAL, write
from batten.coordination.rejection import Rejection
from batten.coordination.session import Session
from batten.models.contract import ToolSpec
from batten.tools.contract import Effect, Tool, ToolContext, ToolOutput

LLM_CALL = "llm.call.completed"
"""The type of the signal that tells watchers of a model call."""
CHANGES = frozenset({MacpSessionChanged.TYPE})


class ModelCalls:
    """The model calls of an agent; each is told with one message."""

    def __init__(self) -> None:
        self._last: AssistantMessageComplete | None = None

    def observe(self, message: Any, stop_reason: str, error: str | None = None) -> None:
        """The ledger's fact says more."""

    def take(self, fact: Fact) -> None:
        if isinstance(fact, AssistantMessageComplete):
            self._last = fact

    def untold(self) -> dict[str, Any] | None:
        """The last call as `llmCall` spells it; None if it was told before."""
        call, self._last = self._last, None
        if call is None:
            return None
        told: dict[str, Any] = {
            "model": call.model if call.answered_by is UNSET else call.answered_by,
            "provider": call.provider,
            "promptTokens": call.usage.input_tokens,
            "completionTokens": call.usage.output_tokens,
            "latencyMs": call.duration_ms,
        }
        if call.cost_micros_usd is not None:
            told["estimatedCostUsd"] = call.cost_micros_usd / 1_000_000
        return told


class Seat:
    """One participant of one session, in the process of the runtime."""

    def __init__(self, runtime: Runtime, session_id: str, name: str) -> None:
        self.runtime = runtime
        self.session_id = session_id
        self.name = name
        self.calls = ModelCalls()
        self._seen = 0

    async def session(self) -> Session:
        """The session as it is now. Raises `SESSION_NOT_FOUND`."""
        session = await self.runtime.find(self.session_id)
        if session is None:
            raise Rejection("SESSION_NOT_FOUND", f"there is no session {self.session_id}")
        return session

    async def until_open(self) -> Session:
        """Wait while the session is suspended, for as long as it may be; returns it after that."""
        session = await self.session()
        if session.state != "SUSPENDED":
            return session
        run_id = await self.runtime.run_of(self.session_id)
        assert run_id is not None
        async with aclosing(self.runtime.journal.follow(run_id, types=CHANGES)) as pages:
            async for _ in pages:
                session = await self.session()
                if session.state != "SUSPENDED":
                    break
        return session

    async def acts(self) -> list[Act]:
        """What this participant may do, by its mode and role."""
        return acts_of(await self.session(), self.name)

    async def tools(self) -> "tuple[Tool, ...]":
        session = await self.session()
        return tuple(ActTool(self, session, act) for act in acts_of(session, self.name))

    async def news(self) -> list[str]:
        """The transcript's lines since the last call; all of them at the first."""
        accepted = await transcript(self.runtime, self.session_id)
        new = [one for one in accepted if one.ordinal > self._seen]
        if new:
            self._seen = new[-1].ordinal
        session = await self.session()
        return [transcript_line(one, session) for one in new]

    async def send(
        self, act: Act, arguments: dict[str, Any], metadata: dict[str, Any] | None = None
    ) -> Answer:
        """Send an act, once the session is not suspended.

        Raises `Rejection`, which says why it is not accepted.
        """
        message_id = _message_id()
        while True:
            session = await self.until_open()
            message = Message(
                mode=session.descriptor.mode,
                message_type=act.message_type,
                message_id=message_id,
                session_id=self.session_id,
                sender=self.name,
                timestamp_unix_ms=self.runtime.clock(),
                payload=payload_of(session, act, arguments, message_id),
                metadata=metadata or {},
            )
            try:
                return await self.runtime.send(message)
            except Rejection:
                if (await self.session()).state != "SUSPENDED":
                    raise

    def tell_call(self, call: dict[str, Any]) -> None:
        """Tell those who watch signals of a model call: on the wire payloads have no metadata.

        The record of the session has it with the message.
        """
        data = msgspec.json.encode(call)
        fields = {
            "signal_type": LLM_CALL,
            "data": data,
            "correlation_session_id": self.session_id,
        }
        message = Message(
            message_type="Signal",
            message_id=_message_id(),
            sender=self.name,
            timestamp_unix_ms=self.runtime.clock(),
            payload=write(SIGNAL, fields),
        )
        self.runtime.signals.publish(Heard(message, is_authenticated=True))


class ActTool:
    """One act as a tool of an agent. A message that is not accepted is a failed call."""

    kind: ToolKind = "custom"
    effect: Effect = "none"

    def __init__(self, seat: Seat, session: Session, act: Act) -> None:
        self._seat = seat
        self._act = act
        self.spec = ToolSpec(
            name=act.name,
            description=act.description,
            parameters=parameters_of(session, act),
        )

    def subject(self, arguments: dict[str, Any]) -> str:
        return ""

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        seat = self._seat
        metadata: dict[str, Any] = {"toolCallId": context.call_id}
        recorder = getattr(context, "recorder", None)
        if recorder is not None:
            metadata["runId"] = recorder.run_id
        call = seat.calls.untold()
        if call is not None:
            metadata["llmCall"] = call
        try:
            answer = await seat.send(self._act, arguments, metadata)
        except Rejection as rejection:
            return ToolOutput(
                text=f"Error: {rejection}", ending="failed", error_kind=rejection.macp_code
            )
        if call is not None:
            seat.tell_call(call)
        text = f"accepted as message {answer.ordinal}"
        return ToolOutput(text=text if answer.state == "OPEN" else f"{text}: the session is over")


async def transcript(runtime: Runtime, session_id: str) -> list[Accepted]:
    """The accepted messages of a session, in order."""
    run_id = await runtime.run_of(session_id)
    stored = None if run_id is None else await store.load(runtime.keeping, run_id)
    if stored is None:
        raise Rejection("SESSION_NOT_FOUND", f"there is no session {session_id}")
    found = [event for event in stored.events if not isinstance(event, Changed)]
    return [stored.first, *found]


def transcript_line(accepted: Accepted, session: Session) -> str:
    """A message for a participant: its place, its sender, what it says as JSON."""
    message = accepted.message
    head = f"{accepted.ordinal}. {message.sender}: {message.message_type}"
    if message.message_type == "SessionStart":
        return f"{head} {session.intent}".rstrip()
    value = session.mode.read_payload(message.message_type, message.payload)
    said: dict[str, Any] = {}
    for name in value.__struct_fields__:
        field = _plain(getattr(value, name))
        if field or field is False:
            said[name] = field
    return f"{head} {msgspec.json.encode(said).decode()}"


def _plain(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _message_id() -> str:
    return to_uuid(new_request_id())
