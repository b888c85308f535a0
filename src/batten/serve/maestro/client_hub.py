"""Fan-out to connected clients; also folds the session state shown in snapshots."""

import asyncio
import secrets
import threading
import time
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from batten.protocols.maestro import PROTOCOL_VERSION
from batten.protocols.maestro.hosted import RuntimeSnapshot
from batten.protocols.maestro.incoming import Hello, Incoming, Init, Prompt, ShutDown
from batten.protocols.maestro.outgoing import ConnectionInfo, Message, Status
from batten.protocols.maestro.registry import Registry
from batten.protocols.maestro.roster import Gone
from batten.protocols.maestro.snapshot import RuntimeState
from batten.protocols.maestro.state import Conversation
from batten.protocols.maestro.vocabulary import RequestType
from batten.runner.restore import Restored
from batten.serve.maestro.greeting import other_version
from batten.serve.maestro.outbox import Outbox
from batten.serve.maestro.sharing import Sharing

_ALWAYS: frozenset[RequestType] = frozenset({"approval"})


class ClientHub:
    """The connections of a runtime, its outbox and the state folded from its messages."""

    has_room = True

    def __init__(
        self,
        sharing: Sharing,
        restored: Restored | None = None,
        now: Callable[[], float] = time.time,
        cursor: int = 0,
        last_init: Init | None = None,
    ) -> None:
        """A session that was not restored goes on from `cursor` and `last_init`."""
        self.registry = Registry(sharing.timings, now, _new_id, sharing.most)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._is_restored = restored is not None
        """Whether the state may show a run from before the restore."""
        self._before_end: RuntimeSnapshot | None = None
        self._encoded: tuple[object, bytes] | None = None
        """The last encoded snapshot, with what it was made of."""
        if restored is None:
            self.session_id = ""
            self.last_init = last_init
            self._conversation = Conversation()
            self.outbox = Outbox(
                self._snapshot, ring=sharing.ring, mailbox=sharing.mailbox, cursor=cursor
            )
            return
        self.session_id = restored.session_id
        self.last_init = restored.snapshot.last_init
        self._conversation = Conversation.of(restored.snapshot.state)
        self.outbox = Outbox(
            self._snapshot,
            ring=sharing.ring,
            mailbox=sharing.mailbox,
            cursor=restored.cursor,
            restored=restored.snapshot,
        )

    @property
    def state(self) -> RuntimeState:
        """The state folded from the messages, without the connections."""
        return self._conversation.state

    @property
    def serves(self) -> frozenset[RequestType]:
        """The request classes that the controller answers. Approvals wait even without one."""
        return self.registry.serves | _ALWAYS

    @property
    def wants_raw(self) -> bool:
        return self.registry.wants_raw

    @property
    def wants_endings(self) -> bool:
        return self.registry.wants_endings

    def is_owner(self, connection_id: str) -> bool:
        """Whether a connection has commands or watches that run."""
        state = self.state
        owners = {
            *(one.owner_connection_id for one in state.active_utility_commands),
            *(one.owner_connection_id for one in state.active_file_watches),
        }
        return connection_id in owners

    async def room(self) -> None:
        await asyncio.sleep(0)

    def send(self, message: Message) -> None:
        """Publish a message to all clients, from any thread."""
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.send, message)
            return
        self.know(message)
        self.outbox.publish(message)

    def know(self, message: Message) -> None:
        """Fold a message into the state without publishing it."""
        self._conversation.hear(message)

    def introduce(self, *messages: Message) -> None:
        """Publish the first messages. A restored session only folds them: it continues."""
        for message in messages:
            if self._is_restored:
                self.know(message)
            else:
                self.send(message)

    def heed(self, message: Incoming) -> None:
        """Fold a client's accepted message into the state."""
        if isinstance(message, Prompt) and self._is_restored:
            self._is_restored = False
            self._leave_restored_run()
        if isinstance(message, Init):
            # Client tools belong to the present connection; later clients see the rest.
            self.last_init = replace(message, client_tools=None)
        self._conversation.say(message)

    def _leave_restored_run(self) -> None:
        """Drop what the run in the manifest left open, and tell those who were shown it."""
        shown = self.state
        self._conversation.leave_run()
        if shown.tracked_tools or shown.active_tools or shown.pending_requests:
            self.outbox.publish_snapshot()

    def greet(self, connection_id: str, hello: Hello) -> None:
        """Answer a greeting, and publish the connection to all clients."""
        self.outbox.publish(self.registry.greet(connection_id, hello), only=connection_id)
        self.outbox.publish(self._met(connection_id))
        notice = other_version(hello)
        if notice is not None:
            self.send(notice)

    def announce(self, connection_id: str) -> None:
        """Publish a connection that took a free controller lease."""
        self.outbox.publish(self._met(connection_id))
        self.outbox.publish_snapshot()

    def welcome(self, connection_id: str) -> None:
        """Publish the state after a connection or subscription was added."""
        self._met(connection_id)
        self.outbox.publish_snapshot()

    def left(self) -> RuntimeSnapshot:
        """The state that a manifest keeps: of a session that is over, the one before its end."""
        return self._before_end or self.outbox.snapshot()

    def end(self, status: str) -> None:
        """The session is over: publish the final state. Earlier messages stay readable."""
        self._before_end = self.left()
        self._conversation.say(ShutDown())
        self.know(Status(message=status))
        self.outbox.publish_end()

    def dismiss(self, gone: Gone) -> None:
        """Close the mailboxes of closed connections."""
        for subscription_id in gone.subscriptions:
            self.outbox.close(subscription_id)

    def _met(self, connection_id: str) -> ConnectionInfo:
        """The info that is published about a connection; the state holds the controller's."""
        info = self.registry.info(connection_id)
        if connection_id == self.registry.controller_connection_id:
            self.know(info)
        return info

    def encoded_snapshot(self) -> bytes:
        """The present state as JSON, encoded again only after a change."""
        made_of = (
            self.outbox.cursor,
            self._conversation.version,
            self.registry.version,
            self.session_id,
            self.last_init,
        )
        if self._encoded is None or self._encoded[0] != made_of:
            self._encoded = made_of, msgspec.json.encode(self.outbox.snapshot())
        return self._encoded[1]

    def _snapshot(self, cursor: int) -> RuntimeSnapshot:
        return RuntimeSnapshot(
            protocol_version=PROTOCOL_VERSION,
            session_id=self.session_id,
            cursor=cursor,
            last_init=self.last_init,
            state=self.registry.shown(self._conversation.state),
        )


def _new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"
