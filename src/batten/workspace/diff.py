"""Unified diffs of one file, in bytes, as `git apply` and `patch` read them.

Bounded cost: the common beginning and end are skipped, and a difference too large to match line
by line becomes one replaced block.
"""

from msgspec import Struct

_CONTEXT = 3
_CLOSE_LINES = 5_000
_CLOSE_BYTES = 1024 * 1024
_BINARY_PROBE = 8192


class Stats(Struct, frozen=True):
    additions: int
    deletions: int
    hunks: int


class Diff(Struct, frozen=True):
    body: bytes
    stats: Stats

    @property
    def text(self) -> str:
        """For people: bytes that are not UTF-8 are replaced."""
        return self.body.decode("utf-8", "replace")


_Block = tuple[int, int, int, int]
"""Lines `[a, b)` of the old side became lines `[c, d)` of the new."""


def unified(path: str, before: bytes | None, after: bytes | None) -> Diff:
    """The diff of one file; None means the file does not exist."""
    old, new = _quoted("a/" + path.lstrip("/")), _quoted("b/" + path.lstrip("/"))
    head = [b"diff --git %s %s\n" % (old, new)]
    if before is None:
        head.append(b"new file mode 100644\n")
    if after is None:
        head.append(b"deleted file mode 100644\n")
    old = old if before is not None else b"/dev/null"
    new = new if after is not None else b"/dev/null"
    if _is_binary(before) or _is_binary(after):
        head.append(b"Binary files %s and %s differ\n" % (old, new))
        return Diff(b"".join(head), Stats(0, 0, 0))
    a, b = _lines(before or b""), _lines(after or b"")
    hunks = _hunks(_blocks(a, b))
    if hunks:
        # Without the tab, readers cut a name at its first space.
        head.append(b"--- %s%s\n+++ %s%s\n" % (old, _tab(old), new, _tab(new)))
    body = b"".join(head + [_rendered(hunk, a, b) for hunk in hunks])
    changed = [block for hunk in hunks for block in hunk]
    return Diff(
        body,
        Stats(
            additions=sum(d - c for _, _, c, d in changed),
            deletions=sum(b - a for a, b, _, _ in changed),
            hunks=len(hunks),
        ),
    )


def _is_binary(data: bytes | None) -> bool:
    return data is not None and b"\0" in data[:_BINARY_PROBE]


def _lines(data: bytes) -> list[bytes]:
    """Lines including their newline. Only LF ends a line."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _quoted(path: str) -> bytes:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    if not any(letter in escapes or letter < " " or letter == "\x7f" for letter in path):
        return path.encode()
    spelled = [
        escapes.get(letter) or (f"\\{ord(letter):03o}" if letter < " " else letter)
        for letter in path.replace("\x7f", "\\177")
    ]
    return f'"{"".join(spelled)}"'.encode()


def _tab(name: bytes) -> bytes:
    return b"\t" if b" " in name and not name.startswith(b'"') else b""


def _blocks(a: list[bytes], b: list[bytes]) -> list[_Block]:
    shorter = min(len(a), len(b))
    start = 0
    while start < shorter and a[start] == b[start]:
        start += 1
    end = 0
    while end < shorter - start and a[-1 - end] == b[-1 - end]:
        end += 1
    middle_a, middle_b = a[start : len(a) - end], b[start : len(b) - end]
    if not middle_a and not middle_b:
        return []
    whole = (start, len(a) - end, start, len(b) - end)
    if not middle_a or not middle_b or not _is_close(middle_a, middle_b):
        return [whole]

    from difflib import SequenceMatcher

    return [
        (start + i, start + j, start + k, start + m)
        for tag, i, j, k, m in SequenceMatcher(None, middle_a, middle_b).get_opcodes()
        if tag != "equal"
    ]


def _is_close(a: list[bytes], b: list[bytes]) -> bool:
    """Whether line-by-line matching is quick enough: its worst case is quadratic."""
    if len(a) + len(b) > 2 * _CLOSE_LINES:
        return False
    return sum(map(len, a)) + sum(map(len, b)) <= 2 * _CLOSE_BYTES


def _hunks(blocks: list[_Block]) -> list[list[_Block]]:
    """Group blocks whose context would touch into one hunk."""
    hunks: list[list[_Block]] = []
    for block in blocks:
        if hunks and block[0] - hunks[-1][-1][1] <= 2 * _CONTEXT:
            hunks[-1].append(block)
        else:
            hunks.append([block])
    return hunks


def _rendered(hunk: list[_Block], a: list[bytes], b: list[bytes]) -> bytes:
    lead = min(_CONTEXT, hunk[0][0])
    first_a, first_b = hunk[0][0] - lead, hunk[0][2] - lead
    trail = min(_CONTEXT, len(a) - hunk[-1][1])
    last_a, last_b = hunk[-1][1] + trail, hunk[-1][3] + trail
    out = [b"@@ -%s +%s @@\n" % (_range(first_a, last_a), _range(first_b, last_b))]
    at = first_a
    for start, stop, new_start, new_stop in hunk:
        out += [_marked(b" ", line) for line in a[at:start]]
        out += [_marked(b"-", line) for line in a[start:stop]]
        out += [_marked(b"+", line) for line in b[new_start:new_stop]]
        at = stop
    out += [_marked(b" ", line) for line in a[at:last_a]]
    return b"".join(out)


def _range(start: int, stop: int) -> bytes:
    """Line numbers as hunk headers write them: an empty range names the line before it."""
    size = stop - start
    if size == 1:
        return b"%d" % (start + 1)
    return b"%d,%d" % (start + 1 if size else start, size)


def _marked(mark: bytes, line: bytes) -> bytes:
    return (
        mark + line if line.endswith(b"\n") else mark + line + b"\n\\ No newline at end of file\n"
    )
