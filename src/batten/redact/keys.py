"""Private keys line by line, as diffs and searches show them: with a prefix on every line, or
without their beginning.

Text between the lines stays. Without its beginning a key is recognised only at its end; so that a
stream need not hold back every word, the first characters stay readable.
"""

import re

from batten.redact.shapes import compiled

NEEDS = "PRIVATE KEY"

_BEGIN = r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----[ \t\r]{0,8}"
_BEGIN_LENGTH = 90
_END = r"-----END [A-Z0-9 ]{0,30}PRIVATE KEY"
# None of these is ambiguous: otherwise a line cut short would begin at another place.
_BEFORE = (
    r"(?:[-+ ]{1,2}+|[^\n]{1,200}[:-][0-9]{1,7}[:-] ?|[ \t]{0,8}[0-9]{1,7}(?:\t|[:|→] ?)"
    r"|(?![-+ ]))"
)
_LEAST_LONG = 40
_LONG = _BEFORE + r"(?P<body>[A-Za-z0-9+/]{40,100}={0,2})[ \t\r]{0,4}"
_SHORT = _BEFORE + r"(?P<body>[A-Za-z0-9+/]{1,39}={0,2})[ \t\r]{0,4}"
_GROWING = _BEFORE + r"(?P<body>[A-Za-z0-9+/]{17,100}={0,2})[ \t\r]{0,4}"
_LEAST_GROWING = 17
_TAIL = _LEAST_GROWING + 6
"""With what may follow the body on its line."""
_HEADER = _BEFORE + r"(?:[A-Z][A-Za-z-]{2,20}: [^\n]{0,80})?[ \t\r]{0,4}"

_LINE = 320
_LINES = 128
_HEADERS = 6
_READABLE = 16


def key_lines(text: str, start: int, *, final: bool) -> list[tuple[int, int]]:
    """The spans of keys in a text whose first `start` characters are only context."""
    spans: list[tuple[int, int]] = []
    if NEEDS not in text:
        return spans
    for found in compiled(_BEGIN + r"\n").finditer(text):
        spans += _after(text, found.end(), final=final)
    for found in compiled(_END).finditer(text):
        line = _line_start(text, found.start(), start)
        if line is not None and compiled(_BEFORE).fullmatch(text, line, found.start()):
            bodies = [body for _, body in _back(text, line, start)[0]]
            if bodies:
                begin, end = bodies[-1]
                spans += [(begin + _READABLE, end), *bodies[:-1]]
    return spans


def unsettled(text: str, start: int) -> tuple[int, int]:
    """Where the next scan must begin, and where a key may already have begun."""
    length = len(text)
    line = _line_start(text, length, start)
    if line is None:
        return max(0, length - _BEGIN_LENGTH), length
    run, place = _back(text, line, start)
    begin = _begin_before(text, place, start) if NEEDS in text else None
    if begin is not None:
        return begin, line
    if run:
        first, (body, _) = run[-1]
        return first, body + _READABLE
    growing = compiled(_GROWING).fullmatch(text, line) if _may_grow(text) else None
    return line, growing.start("body") + _READABLE if growing else length


def _may_grow(text: str) -> bool:
    """Whether a text may end with a line of a key: prose has a blank among its last characters."""
    body = text[-_TAIL:].rstrip(" \t\r").rstrip("=")[-_LEAST_GROWING:]
    return len(body) == _LEAST_GROWING and " " not in body


def _after(text: str, place: int, *, final: bool) -> list[tuple[int, int]]:
    """The lines of a key that begins at `place`."""
    bodies: list[tuple[int, int]] = []
    headers = 0
    while True:
        end = text.find("\n", place, place + _LINE + 1)
        if end < 0:
            if not final or len(text) - place > _LINE:
                return bodies
            end = len(text)
        body = _body(_LONG, text, place, end) if len(bodies) < _LINES else None
        if body is None and bodies:
            last = _body(_SHORT, text, place, end)
            return bodies if last is None else [*bodies, last]
        if body is not None:
            bodies.append(body)
        elif headers < _HEADERS and compiled(_HEADER).fullmatch(text, place, end):
            headers += 1
        else:
            return bodies
        if end == len(text):
            return bodies
        place = end + 1


def _back(text: str, place: int, start: int) -> tuple[list[tuple[int, tuple[int, int]]], int]:
    """The lines of a key that ends before a line, last first, and where the first begins."""
    run: list[tuple[int, tuple[int, int]]] = []
    short: list[tuple[int, tuple[int, int]]] = []
    whole = place
    while len(run) < _LINES and place > 0:
        line = _line_start(text, place - 1, start)
        if line is None:
            break
        is_long = place - line > _LEAST_LONG
        body = _body(_LONG, text, line, place - 1) if is_long else None
        if body is not None:
            run.append((line, body))
        else:
            last = _body(_SHORT, text, line, place - 1)
            if run or short or last is None:
                break
            short.append((line, last))
        place = line
    return ([*short, *run], place) if run else ([], whole)


def _begin_before(text: str, place: int, start: int) -> int | None:
    """Where a key begins, if only its headers lie between its beginning and `place`."""
    for _ in range(_HEADERS + 1):
        if place == 0:
            return None
        tail = max(0, place - 1 - _BEGIN_LENGTH)
        for found in compiled(_BEGIN + r"\n").finditer(text, tail, place):
            if found.end() == place:
                return found.start()
        line = _line_start(text, place - 1, start)
        if line is None or not compiled(_HEADER).fullmatch(text, line, place - 1):
            return None
        place = line
    return None


def _line_start(text: str, place: int, start: int) -> int | None:
    """Where the line of `place` begins, if that is near and not cut off."""
    nearest = max(0, place - _LINE)
    found = text.rfind("\n", max(0, nearest - 1), place)
    if found >= 0:
        return found + 1
    return 0 if nearest == 0 and start == 0 else None


def _body(source: str, text: str, begin: int, end: int) -> tuple[int, int] | None:
    found: re.Match[str] | None = compiled(source).fullmatch(text, begin, end)
    return None if found is None else found.span("body")
