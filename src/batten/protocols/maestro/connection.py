"""The negotiated state of one client: its role, its capabilities, its opt-outs."""

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from batten.protocols.maestro import PROTOCOL_VERSION, incoming, outgoing, vocabulary

LOCAL = "local"
"""The id of the only connection on standard input and output."""
VIEWER_REFUSED = "Viewer headless connections cannot send messages"
ROLE_CHANGED = "headless connection role cannot change after hello"

_NEEDS: dict[type[incoming.Incoming], vocabulary.Operation] = {
    incoming.CommandStart: "command_exec",
    incoming.CommandStdin: "command_exec",
    incoming.CommandResize: "command_exec",
    incoming.FileSearch: "file_search",
    incoming.FileRead: "file_read",
    incoming.WatchStart: "file_watch",
}
_OPTIONAL: dict[type[outgoing.Message], vocabulary.Notification] = {
    outgoing.Status: "status",
    outgoing.Compaction: "compaction",
    outgoing.ConnectionInfo: "connection_info",
}
CAPABILITIES = outgoing.ServerCapabilities(
    server_requests=vocabulary.REQUEST_TYPES,
    utility_operations=vocabulary.OPERATIONS,
    raw_agent_events=True,
    connection_roles=vocabulary.ROLES,
)


def problem(
    established: vocabulary.Role | None,
    hello: incoming.Hello,
    interactive: tuple[vocabulary.RequestType, ...] = vocabulary.INTERACTIVE,
) -> str | None:
    """The error in a `hello` on a connection with this role, or with none yet."""
    if established is not None and hello.role not in (None, established):
        return ROLE_CHANGED
    if (hello.role or established) == "viewer" and hello.capabilities is not None:
        for kind in interactive:
            if kind in (hello.capabilities.server_requests or ()):
                return f"viewer headless connections cannot negotiate {kind} requests"
    return None


def inherited(hello: incoming.Hello, base: incoming.Hello, role: vocabulary.Role) -> incoming.Hello:
    """A `hello` in this role, with missing fields taken from another."""
    capabilities = hello.capabilities
    if capabilities is None:
        capabilities = base.capabilities
        if role == "viewer" and capabilities is not None:
            requests = capabilities.server_requests or ()
            served = tuple(kind for kind in requests if kind not in vocabulary.INTERACTIVE)
            capabilities = replace(capabilities, server_requests=served)
    opted_out = hello.opt_out_notifications
    return incoming.Hello(
        protocol_version=hello.protocol_version or base.protocol_version,
        client_info=hello.client_info or base.client_info,
        capabilities=capabilities,
        role=role,
        opt_out_notifications=base.opt_out_notifications if opted_out is None else opted_out,
    )


class Connection:
    """One client. Each accepted `hello` replaces all of the one before except the role."""

    def __init__(self, connection_id: str = LOCAL) -> None:
        self.connection_id = connection_id
        self.established: vocabulary.Role | None = None
        """The role; None before the first `hello`."""
        self.hello = incoming.Hello()
        """The `hello` in force."""
        self.opted_out: tuple[vocabulary.Notification, ...] = ()
        """Notifications that the client opted out of."""

    @property
    def role(self) -> vocabulary.Role:
        return self.established or "controller"

    @property
    def serves(self) -> frozenset[vocabulary.RequestType]:
        """The classes of requests that the client answers."""
        capabilities = self.hello.capabilities
        return frozenset(capabilities.server_requests or ()) if capabilities else frozenset()

    @property
    def wants_raw(self) -> bool:
        capabilities = self.hello.capabilities
        return capabilities is not None and capabilities.raw_agent_events is True

    @property
    def wants_endings(self) -> bool:
        capabilities = self.hello.capabilities
        return capabilities is not None and capabilities.endings is True

    @property
    def takes_over(self) -> bool:
        """Whether a resumed session finishes the run that an earlier process left."""
        capabilities = self.hello.capabilities
        return capabilities is None or capabilities.takes_over is not False

    def greet(self, hello: incoming.Hello) -> outgoing.HelloOk:
        """Accept a `hello` that has no `problem`."""
        self.established = hello.role or self.role
        self.hello = hello
        self.opted_out = tuple(dict.fromkeys(hello.opt_out_notifications or ()))
        return outgoing.HelloOk(
            protocol_version=PROTOCOL_VERSION,
            server_capabilities=CAPABILITIES,
            controller_connection_id=self._controller(),
            **self._negotiated(),
        )

    def info(self) -> outgoing.ConnectionInfo:
        return outgoing.ConnectionInfo(
            connection_count=1,
            controller_connection_id=self._controller(),
            connections=(self.state(),),
            **self._negotiated(),
        )

    def refusal(self, message: incoming.Incoming) -> str | None:
        """Why this client may not send this message now."""
        if self.role == "viewer":
            return VIEWER_REFUSED
        needed = _NEEDS.get(type(message))
        capabilities = self.hello.capabilities
        offered = () if capabilities is None else capabilities.utility_operations or ()
        if needed is None or needed in offered:
            return None
        return f"{message.__struct_config__.tag} requires {needed} capability"

    def wants(self, message: outgoing.Message) -> bool:
        """Whether the client did not opt out of this message."""
        return _OPTIONAL.get(type(message)) not in self.opted_out

    def heard(
        self, message: outgoing.Message, opted_out: tuple[vocabulary.Notification, ...]
    ) -> outgoing.Message | None:
        """A broadcast message as this client receives it; None if it does not."""
        if _OPTIONAL.get(type(message)) in opted_out:
            return None
        if isinstance(message, outgoing.RawAgentEvent):
            return message if self.wants_raw else None
        if isinstance(message, outgoing.ResponseEnd) and not self.wants_endings:
            return replace(message, ending=UNSET)
        return message

    def _controller(self) -> str | None:
        return self.connection_id if self.role == "controller" else None

    def state(self) -> outgoing.ConnectionState:
        """The state of a connection that does not share its session."""
        return outgoing.ConnectionState(
            subscription_count=1,
            attached_subscription_count=1,
            controller_lease_granted=self.role == "controller",
            **self._negotiated(),
        )

    def _negotiated(self) -> dict[str, Any]:
        """The fields by which messages describe this client."""
        hello = self.hello
        opted_out = UNSET if hello.opt_out_notifications is None else self.opted_out
        return {
            "connection_id": self.connection_id,
            "role": self.role,
            "client_protocol_version": hello.protocol_version or UNSET,
            "client_info": hello.client_info or UNSET,
            "capabilities": UNSET if hello.capabilities is None else _once(hello.capabilities),
            "opt_out_notifications": opted_out,
            "lease_expires_at": None,
        }


def _once(capabilities: outgoing.ClientCapabilities) -> outgoing.ClientCapabilities:
    """Capabilities are sets: remove duplicates."""
    requests, operations = capabilities.server_requests, capabilities.utility_operations
    return replace(
        capabilities,
        server_requests=UNSET if requests is UNSET else tuple(dict.fromkeys(requests)),
        utility_operations=UNSET if operations is UNSET else tuple(dict.fromkeys(operations)),
    )
