"""The lifecycle of a daemon's session on the bus: each state once, in order."""

from typing import Any

from batten.contract.envelope import timestamp
from batten.sinks.bus import payloads
from batten.sinks.bus.correlation import surface_of
from batten.sinks.bus.publisher import Publisher

SOURCE = "maestro.ambient-agent"
AGENT_ID = "ambient_agent_daemon"


class DaemonLifecycle:
    """Publishes as well as it can: a bus that is away delays nothing."""

    def __init__(self, publisher: Publisher, session_id: str, data_dir: str) -> None:
        self._publisher = publisher
        self._session_id = session_id
        self._data_dir = data_dir
        self._state: payloads.SessionState | None = None

    async def enter(self, state: payloads.SessionState, **more: Any) -> bool:
        """Publish a change of state; a repeated one publishes nothing. Whether it was a change.

        Raises `ValueError` for a state that cannot follow: only a suspended session is resumed.
        """
        if state == self._state or (state == "resumed" and self._state == "started"):
            return False
        before = {"started": (None,), "resumed": ("suspended",)}.get(
            state, ("started", "suspended", "resumed")
        )
        if self._state not in before:
            raise ValueError(f"a session that is {self._state or 'not started'} cannot be {state}")
        self._state = state
        if state == "closed":
            more = {"close_reason": "USER_STOPPED", "close_message": "shutdown requested", **more}
        data = payloads.session(
            state,
            timestamp(),
            surface=surface_of(""),
            runtime_mode="MAESTRO_RUNTIME_MODE_HEADLESS",
            metadata={"data_dir": self._data_dir},
            **more,
        )
        context = {"session_id": self._session_id, "agent_id": AGENT_ID}
        made = self._publisher.event(f"maestro.sessions.session.{state}", data, correlation=context)
        await self._publisher.publish(made)
        return True
