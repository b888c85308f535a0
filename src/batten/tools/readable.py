"""HTML as plain text: the visible text, one line per block.

Linear in the size of the page, whatever a hostile page contains.
"""

MOST_HTML = 512 * 1024
"""Characters of a page that are parsed; far more than any result shows."""

_HIDDEN = frozenset(("script", "style", "noscript", "template", "svg", "iframe", "head"))
_VERBATIM = frozenset(("script", "style"))
"""Elements whose content contains no tags: only their own end tag ends them."""
_BLOCKS = frozenset(
    (
        *("p", "div", "br", "li", "ul", "ol", "tr", "table", "section", "article", "header"),
        *("h1", "h2", "h3", "h4", "h5", "h6", "pre", "blockquote", "hr", "dt", "dd", "title"),
        *("main", "footer"),
    )
)
_LONGEST_NAME = 32
_MOST_HIDDEN = 100
"""Depth to which nested hidden elements are tracked."""


class _Reader:
    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._hidden: list[str] = []

    def read(self, html: str) -> None:
        lower = html.lower()
        if len(lower) != len(html):
            # A few letters grow in lower case, and offsets would no longer match.
            lower = html
        place = 0
        while (start := html.find("<", place)) >= 0:
            self._text(html[place:start])
            if html.startswith("<!--", start):
                place = _after(html, "-->", start + 4)
                continue
            following = html[start + 1 : start + 2]
            if not (following.isalpha() or following in ("/", "!", "?")):
                self._text("<")
                place = start + 1
                continue
            end = html.find(">", start)
            if end < 0:
                return
            name = _name(lower, start + 1, end)
            place = end + 1
            if name.startswith("/"):
                self._end(name[1:])
                continue
            self._start(name)
            if name in _VERBATIM:
                closing = lower.find(f"</{name}", place)
                place = len(html) if closing < 0 else closing
        self._text(html[place:])

    def _start(self, tag: str) -> None:
        if tag in _HIDDEN and len(self._hidden) < _MOST_HIDDEN:
            self._hidden.append(tag)
        elif tag == "body":
            # A head that was never closed must not hide the page.
            self._hidden = []
        if tag in _BLOCKS:
            self.pieces.append("\n- " if tag == "li" else "\n")
        elif tag in ("td", "th"):
            self.pieces.append(" ")

    def _end(self, tag: str) -> None:
        if tag in self._hidden:
            while self._hidden.pop() != tag:
                pass
        if tag in _BLOCKS:
            self.pieces.append("\n")

    def _text(self, text: str) -> None:
        if text and not self._hidden:
            self.pieces.append(text)


def _after(html: str, mark: str, start: int) -> int:
    """The offset after the mark; the end of the page if there is none."""
    found = html.find(mark, start)
    return len(html) if found < 0 else found + len(mark)


def _name(lower: str, start: int, end: int) -> str:
    """The name of a tag, with a leading slash for an end tag."""
    words = lower[start : min(end, start + _LONGEST_NAME)].split(None, 1)
    return words[0].rstrip("/") if words else ""


def readable(html: str) -> str:
    """The text of a page, without tags, scripts and empty lines."""
    reader = _Reader()
    reader.read(html[:MOST_HTML])
    lines = (" ".join(line.split()) for line in _unescaped("".join(reader.pieces)).split("\n"))
    return "\n".join(line for line in lines if line not in ("", "-"))


def _unescaped(text: str) -> str:
    from html import unescape

    try:
        return unescape(text)
    except ValueError:
        # A character reference of thousands of digits: keep the text as it is.
        return text
