"""A watch over files of a worker's workspace."""

from collections.abc import AsyncGenerator

from msgspec import Struct

from batten.client.connection import AnyMessage
from batten.client.errors import UtilityRefused
from batten.client.mailbox import Flow, Mailbox, Slot
from batten.contract.errors import BattenError
from batten.protocols.maestro import outgoing
from batten.protocols.maestro.vocabulary import ChangeType


class FileChanged(Struct, frozen=True, kw_only=True):
    path: str
    """Relative to the watched root."""
    change: ChangeType
    is_directory: bool


class Watch:
    """Iterate it for changes until the watch ends; one reader at a time."""

    def __init__(self, flow: Flow) -> None:
        self.started: Slot[None] = Slot(flow)
        self._changes: Mailbox[FileChanged] = Mailbox(flow, patient=True)

    async def __aiter__(self) -> AsyncGenerator[FileChanged, None]:
        while (change := await self._changes.get()) is not None:
            yield change

    def take(self, message: AnyMessage, size: int) -> None:
        match message:
            case outgoing.WatchStarted():
                self.started.put(None)
            case outgoing.WatchEvent():
                changed = FileChanged(
                    path=message.relative_path,
                    change=message.change_type,
                    is_directory=message.is_directory,
                )
                self._changes.put(changed, size)
            case outgoing.WatchStopped():
                self.started.fail(UtilityRefused(message.reason or "the watch did not begin"))
                self._changes.close()
            case outgoing.Error():
                self.fail(UtilityRefused(message.message))
            case _:
                pass

    def fail(self, error: BattenError) -> None:
        self.started.fail(error)
        self._changes.close(error)

    def leave(self) -> None:
        self._changes.discard()
