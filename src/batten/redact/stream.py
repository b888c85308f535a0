"""Redaction of a text that arrives in pieces.

However a text is cut, what comes out is what `Redactor.text` makes of the whole. Text is
held back only from where a secret may have begun; what was given out is remembered just
long enough to recognise what follows it.
"""

import codecs
from collections.abc import Iterable, Iterator

from batten.redact.redactor import Redactor, union
from batten.redact.scan import MARK, end_of_run
from batten.redact.shapes import LOOKBEHIND, TRIGGER_LENGTH


class StreamRedactor:
    """Text in, redacted text out. `flush` ends it.

    With `keep_lines` a secret of many lines leaves its line breaks: what follows it stays
    on its line.
    """

    def __init__(self, redactor: Redactor, *, keep_lines: bool = False) -> None:
        self._scanner = redactor.scanner
        self._keep_lines = keep_lines
        self._text = ""
        self._given = 0
        """How much of the kept text was given out already."""
        self._marked = -1
        """Where the last mark ends: a secret that touches it needs no other."""
        self._start = 0
        """Before this place the kept text is only context."""
        self._seen = 0
        """How much of the kept text was looked at already."""
        self._open: set[str] = set()
        """Classes of characters that go on being secret after it."""
        self._spans: list[tuple[int, int]] = []
        """Secrets found, and not given out as marks yet."""

    def feed(self, piece: str) -> str:
        """What can be given out now."""
        return self._advance(piece, final=False)

    def flush(self) -> str:
        """The rest. Feed nothing after it."""
        return self._advance("", final=True)

    @property
    def held(self) -> int:
        """How many characters are held back."""
        return len(self._text) - self._given

    def _advance(self, piece: str, *, final: bool) -> str:
        text = self._text = self._text + piece
        scan = self._scanner.look(text, self._start, final=final)
        for value in self._open:
            end = end_of_run(value, text, self._seen)
            scan.spans.append((self._seen, end))
            if end == len(text) and not final:
                scan.open_classes.add(value)
        self._open = scan.open_classes
        self._seen = len(text)
        spans = union(self._spans + scan.spans)
        key_from = _beyond(spans, max(scan.key_from, self._given))
        out = self._give(text, spans, min(scan.hold_from, key_from))
        self._spans = [span for span in spans if span[1] > self._given]
        self._forget(min(scan.keep_from, self._given))
        return out

    def _give(self, text: str, spans: list[tuple[int, int]], limit: int) -> str:
        pieces: list[str] = []
        for begin, end in spans:
            if end <= self._given:
                continue
            if begin >= limit:
                break
            if begin > self._marked:
                pieces += text[self._given : begin], MARK
            if self._keep_lines:
                pieces.append("\n" * text.count("\n", max(begin, self._given), end))
            # What is secret stays so, whatever else may begin inside it.
            self._given = self._marked = end
        if self._given < limit:
            pieces.append(text[self._given : limit])
            self._given = limit
        return "".join(pieces)

    def _forget(self, keep_from: int) -> None:
        cut = min(keep_from, len(self._text) - TRIGGER_LENGTH) - LOOKBEHIND
        if cut <= 0:
            return
        self._text = self._text[cut:]
        self._given -= cut
        self._marked -= cut
        self._seen -= cut
        self._spans = [(begin - cut, end - cut) for begin, end in self._spans]
        self._start = LOOKBEHIND


def _beyond(spans: list[tuple[int, int]], place: int) -> int:
    """The place, or where the secret around it ends."""
    return next((end for begin, end in spans if begin <= place < end), place)


class ByteRedactor:
    """Bytes in, redacted bytes out: for the output of commands, which cuts characters too."""

    def __init__(self, redactor: Redactor, *, keep_lines: bool = False) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._stream = StreamRedactor(redactor, keep_lines=keep_lines)

    def over(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """All of a source, piece by piece."""
        for piece in pieces:
            yield self.feed(piece)
        yield self.flush()

    def feed(self, piece: bytes) -> bytes:
        return self._stream.feed(self._decoder.decode(piece)).encode("utf-8", "surrogateescape")

    def flush(self) -> bytes:
        rest = self._stream.feed(self._decoder.decode(b"", final=True)) + self._stream.flush()
        return rest.encode("utf-8", "surrogateescape")
