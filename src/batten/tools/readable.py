"""HTML as plain text: what a reader would see, a line per block."""

from html.parser import HTMLParser

_HIDDEN = frozenset(("script", "style", "noscript", "template", "svg", "iframe", "head"))
_BLOCKS = frozenset(
    (
        *("p", "div", "br", "li", "ul", "ol", "tr", "table", "section", "article", "header"),
        *("h1", "h2", "h3", "h4", "h5", "h6", "pre", "blockquote", "hr", "dt", "dd", "title"),
        *("main", "footer"),
    )
)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._hidden: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN:
            self._hidden.append(tag)
        elif tag == "body":
            # A head that was never closed must not hide the page.
            self._hidden = []
        if tag in _BLOCKS:
            self.pieces.append("\n- " if tag == "li" else "\n")
        elif tag in ("td", "th"):
            self.pieces.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._hidden:
            while self._hidden.pop() != tag:
                pass
        if tag in _BLOCKS:
            self.pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.pieces.append(data)


def readable(html: str) -> str:
    """The text of a page, without tags, scripts and empty lines."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    lines = (" ".join(line.split()) for line in "".join(reader.pieces).split("\n"))
    return "\n".join(line for line in lines if line not in ("", "-"))
