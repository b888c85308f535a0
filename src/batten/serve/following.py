"""What the renderers share that show each fact of a run as it happens: where they are."""

from batten.journal.contract import Journal, Stored
from batten.serve.words import Redact, without_tokens


class Following:
    """Shows the facts of one run after the other, each once and in order."""

    follows = True

    def __init__(self) -> None:
        self.redact: Redact = without_tokens
        """Removes secrets from errors; the session's own redactor, once it is open."""
        self._shown = -1
        self._closed = False
        """Nothing more may be shown: the last words are being said."""

    def show(self, stored: Stored, journal: Journal) -> None:
        if not self._closed:
            self._shown = stored.sequence
            self._feed(stored, journal)

    def catch_up(self, journal: Journal, run_id: str) -> None:
        self._closed = True
        self._show_rest(journal, run_id)

    def _show_rest(self, journal: Journal, run_id: str) -> None:
        while page := journal.read(run_id, after=self._shown):
            for stored in page:
                self._shown = stored.sequence
                self._feed(stored, journal)

    def _feed(self, stored: Stored, journal: Journal) -> None:
        """Show one fact."""
        raise NotImplementedError
