"""Opens sessions on one journal. The first opening loads the parts of a session."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from batten.contract.errors import CallerError
from batten.wiring.spec import SessionSpec

if TYPE_CHECKING:
    from batten.journal.contract import Journal
    from batten.wiring.opening import OpenedSession


class SessionOpener:
    """Opens any number of sessions at once, each with its own specification.

    A surface derives each specification from `base`, which the command line or embedder made.
    """

    def __init__(self, base: SessionSpec, *, own_process: bool = False) -> None:
        """`own_process`: the journal may block the event loop for a commit."""
        self.base = base
        self._own_process = own_process
        self._journal: Journal | None = None
        self._home = ""
        self.sinks: dict[str, Any] = {}
        """Receivers that the settings of an opened session name."""
        self.began_ns = time.time_ns()
        self.after_open: Callable[[], None] | None = None
        """Called after each opening."""

    @property
    def home(self) -> str:
        """The directory that holds the state of sessions."""
        from batten.wiring.home import batten_home

        self._home = self._home or batten_home(self.base.environ, self.base.cwd)
        return self._home

    @property
    def journal(self) -> "Journal":
        """The store, opened at its first use."""
        if self._journal is None:
            from batten.journal.opening import MEMORY, open_store
            from batten.wiring.quotas import ARTIFACT_VARIABLE, USUAL_ARTIFACT_MIB, bytes_of

            most = bytes_of(self.base.environ, ARTIFACT_VARIABLE, USUAL_ARTIFACT_MIB)
            self._journal = open_store(
                self.home if self.base.save else MEMORY,
                own_process=self._own_process,
                artifact_bytes=most,
            )
        return self._journal

    async def open(self, spec: SessionSpec) -> "OpenedSession":
        """Open, resume or branch a session. Raises `BattenError` if that fails."""
        if not self.base.save and (spec.resume or spec.resume_newest or spec.branch):
            raise CallerError(
                "--no-save keeps nothing, so it cannot go on with a session that is kept",
                code="usage",
            )
        from batten.wiring.opening import open_session

        opened = await open_session(spec, self.journal, self.home)
        if opened.sinks:
            self.sinks = opened.sinks
        if self.after_open is not None:
            self.after_open()
        return opened

    @property
    def may_have_told(self) -> bool:
        """Whether this process has opened a store that lasts, and so may have something to tell."""
        return self.base.save and self._journal is not None

    def close(self) -> None:
        """Close the journal, after every session."""
        if self._journal is not None:
            self._journal.close()
