"""Redaction of a text that arrives in pieces.

The output equals `Redactor.text` of the whole, however the text is cut. Text is held back only from
the place where a secret may have begun; emitted text is kept just long enough to recognise the text
after it.
"""

import codecs
from collections.abc import Iterable, Iterator

from batten.redact.redactor import Redactor, union
from batten.redact.scan import MARK, end_of_run
from batten.redact.shapes import TRIGGER_LENGTH


class StreamRedactor:
    """Text in, redacted text out; `flush` ends the stream.

    With `keep_lines` a multi-line secret keeps its line breaks, so that later text stays on its
    line.
    """

    def __init__(self, redactor: Redactor, *, keep_lines: bool = False) -> None:
        self._scanner = redactor.scanner
        self._keep_lines = keep_lines
        self._text = ""
        self._emitted = 0
        """Characters of the kept text already emitted."""
        self._marked = -1
        """Where the last mark ends: a secret that touches it needs no other mark."""
        self._start = 0
        """Before this place the kept text is only context."""
        self._scanned = 0
        """Characters of the kept text already scanned."""
        self._known_from = 0
        """Where a known value may begin that was not found yet."""
        self._shapes_from = 0
        """Where a trigger may begin that was not decided yet."""
        self._open: set[str] = set()
        """Character classes of secrets that continue past the kept text."""
        self._spans: list[tuple[int, int]] = []
        """Secrets found but not yet emitted as marks."""

    def feed(self, piece: str) -> str:
        """The text that can be emitted now."""
        return self._advance(piece, final=False)

    def flush(self) -> str:
        """The rest. Ends the stream."""
        return self._advance("", final=True)

    @property
    def held(self) -> int:
        """Characters held back."""
        return len(self._text) - self._emitted

    def _advance(self, piece: str, *, final: bool) -> str:
        text = self._text = self._text + piece
        scan = self._scanner.look(
            text, self._start, self._known_from, self._shapes_from, final=final
        )
        for value in self._open:
            end = end_of_run(value, text, self._scanned)
            scan.spans.append((self._scanned, end))
            if end == len(text) and not final:
                scan.open_classes.add(value)
        self._open = scan.open_classes
        self._scanned = len(text)
        self._known_from = scan.known_from
        self._shapes_from = min(scan.shapes_from, max(0, len(text) - TRIGGER_LENGTH))
        spans = union(self._spans + scan.spans)
        key_from = _beyond(spans, max(scan.key_from, self._emitted))
        out = self._emit(text, spans, min(scan.hold_from, key_from))
        self._spans = [span for span in spans if span[1] > self._emitted]
        self._forget(min(scan.keep_from, self._emitted))
        return out

    def _emit(self, text: str, spans: list[tuple[int, int]], limit: int) -> str:
        pieces: list[str] = []
        for begin, end in spans:
            if end <= self._emitted:
                continue
            if begin >= limit:
                break
            if begin > self._marked:
                pieces += text[self._emitted : begin], MARK
            if self._keep_lines:
                pieces.append("\n" * text.count("\n", max(begin, self._emitted), end))
            # A secret stays hidden, also where another may begin inside it.
            self._emitted = self._marked = end
        if self._emitted < limit:
            pieces.append(text[self._emitted : limit])
            self._emitted = limit
        return "".join(pieces)

    def _forget(self, keep_from: int) -> None:
        cut = min(keep_from, len(self._text) - TRIGGER_LENGTH) - self._scanner.context
        if cut <= 0:
            return
        self._text = self._text[cut:]
        self._emitted -= cut
        self._marked -= cut
        self._scanned -= cut
        self._known_from -= cut
        self._shapes_from -= cut
        self._spans = [(begin - cut, end - cut) for begin, end in self._spans]
        self._start = self._scanner.context


def _beyond(spans: list[tuple[int, int]], place: int) -> int:
    """The place, or the end of the secret around it."""
    return next((end for begin, end in spans if begin <= place < end), place)


class ByteRedactor:
    """Bytes in, redacted bytes out: for the output of commands, which may be cut inside a
    character."""

    def __init__(self, redactor: Redactor, *, keep_lines: bool = False) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._stream = StreamRedactor(redactor, keep_lines=keep_lines)

    def over(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            yield self.feed(piece)
        yield self.flush()

    def feed(self, piece: bytes) -> bytes:
        return self._stream.feed(self._decoder.decode(piece)).encode("utf-8", "surrogateescape")

    def flush(self) -> bytes:
        rest = self._stream.feed(self._decoder.decode(b"", final=True)) + self._stream.flush()
        return rest.encode("utf-8", "surrogateescape")
