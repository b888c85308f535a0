"""Opens sessions on one journal. The parts of a session are loaded when the first one is opened."""

from typing import TYPE_CHECKING

from batten.contract.errors import CallerError
from batten.wiring.spec import SessionSpec

if TYPE_CHECKING:
    from batten.journal.sqlite import SqliteJournal
    from batten.wiring.opening import OpenedSession
    from batten.workspace.private_directory import PrivateDirectory


class SessionOpener:
    """Opens any number of sessions at once, each with its own specification.

    A surface derives each specification from `base`, which is what the command line or the
    embedder asked for.
    """

    def __init__(self, base: SessionSpec, *, own_process: bool = False) -> None:
        """`own_process`: the journal may change settings of the interpreter."""
        self.base = base
        self._own_process = own_process
        self._journal: SqliteJournal | None = None
        self._home = ""
        self._unsaved: PrivateDirectory | None = None

    @property
    def home(self) -> str:
        """The directory that holds the state of sessions."""
        from batten.wiring.home import batten_home

        self._home = self._home or batten_home(self.base.environ, self.base.cwd)
        return self._home

    @property
    def journal(self) -> "SqliteJournal":
        """The store, opened when it is first used."""
        if self._journal is None:
            from batten.wiring.opening import open_journal

            store = self.home
            if not self.base.save:
                from batten.workspace.private_directory import PrivateDirectory

                # A process that was killed leaves its directory to the next one to remove.
                self._unsaved = PrivateDirectory(
                    self.base.environ.get("TMPDIR", ""), "batten-unsaved-", swept_whole=True
                )
                store = self._unsaved.path
            self._journal = open_journal(store, own_process=self._own_process)
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
        if self._unsaved is not None:
            self._unsaved.remove_now()
