"""Opens sessions on one journal. The parts of a session are loaded when the first one is opened."""

from typing import TYPE_CHECKING

from batten.contract.errors import CallerError
from batten.wiring.spec import SessionSpec

if TYPE_CHECKING:
    from batten.journal.contract import Journal
    from batten.wiring.opening import OpenedSession


class SessionOpener:
    """Opens any number of sessions at once, each with its own specification.

    A surface derives each specification from `base`, which is what the command line or the
    embedder asked for.
    """

    def __init__(self, base: SessionSpec, *, own_process: bool = False) -> None:
        """`own_process`: the journal may change settings of the interpreter."""
        self.base = base
        self._own_process = own_process
        self._journal: Journal | None = None
        self._home = ""

    @property
    def home(self) -> str:
        """The directory that holds the state of sessions."""
        from batten.wiring.home import batten_home

        self._home = self._home or batten_home(self.base.environ, self.base.cwd)
        return self._home

    @property
    def journal(self) -> "Journal":
        """The store, opened when it is first used."""
        if self._journal is None:
            if self.base.save:
                from batten.journal.sqlite import SqliteJournal

                self._journal = SqliteJournal.open(self.home, own_process=self._own_process)
            else:
                from batten.journal.memory import MemoryJournal

                self._journal = MemoryJournal()
        return self._journal

    async def open(self, spec: SessionSpec) -> "OpenedSession":
        """Open, resume or branch a session; a `BattenError` says why it cannot be."""
        if not self.base.save and (spec.resume or spec.resume_newest or spec.branch):
            raise CallerError(
                "--no-save keeps nothing, so it cannot go on with a session that is kept",
                code="usage",
            )
        from batten.wiring.opening import open_session

        return await open_session(spec, self.journal, self.home)

    def close(self) -> None:
        """Close the journal, after every session."""
        if self._journal is not None:
            self._journal.close()
