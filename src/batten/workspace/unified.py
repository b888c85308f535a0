"""Applies a unified diff of one file to its content: exactly, or not at all."""

import re

from batten.contract.errors import CallerError, Conflict

_HUNK = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_NO_NEWLINE = b"\\"
_NO_TEXT = re.compile(
    rb"(?:old|new) mode |new file mode (?!100644)|(?:rename|copy) (?:from|to) "
    rb"|GIT binary patch|Binary files "
)
"""Lines above the hunks that change more than the text of a file."""


class BadDiff(CallerError):
    """The text is no unified diff of one text file."""

    code = "bad_diff"


class DiffDiffers(Conflict):
    """The file is not what the diff begins with."""

    code = "base_changed"


def apply_unified(before: bytes | None, diff: bytes) -> bytes | None:
    """The content after a diff; None for a file that does not exist.

    Raises `BadDiff`, or `DiffDiffers` if a line of the file is another one than the diff expects.
    """
    lines = diff.removesuffix(b"\n").split(b"\n")
    start = next((number for number, line in enumerate(lines) if line.startswith(b"@@")), None)
    head = lines[:start]
    if (line := next(filter(_NO_TEXT.match, head), None)) is not None:
        shown = line[:80].decode(errors="replace")
        raise BadDiff(
            f"the diff changes more than the text of a file ({shown!r}): modes, links, renames and"
            " binary files are not patched"
        )
    if start is None or sum(line.startswith(b"--- ") for line in head) != 1:
        raise BadDiff("the diff has no hunk below `--- a/path` and `+++ b/path`: is it unified?")
    creates = any(line.startswith(b"--- /dev/null") for line in head)
    deletes = any(line.startswith(b"+++ /dev/null") for line in head)
    if creates != (before is None):
        raise DiffDiffers("the file exists already" if creates else "the file does not exist")
    old = _lines(before or b"")
    new: list[bytes] = []
    place = 0
    reader = _Reader(lines, start)
    while (hunk := reader.hunk()) is not None:
        first, removed, added = hunk
        if first < place or old[first : first + len(removed)] != removed:
            raise DiffDiffers(f"the file differs from the diff at line {first + 1}")
        new += old[place:first] + added
        place = first + len(removed)
    new += old[place:]
    if deletes and new:
        raise DiffDiffers("the diff deletes the file, which has further lines")
    return None if deletes else b"".join(new)


def _lines(data: bytes) -> list[bytes]:
    """Lines by line feeds only: a carriage return belongs to its line."""
    parts = data.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


class _Reader:
    """The hunks of a diff, one after the other."""

    def __init__(self, lines: list[bytes], start: int) -> None:
        self._lines = lines
        self._at = start

    def hunk(self) -> tuple[int, list[bytes], list[bytes]] | None:
        """The first old line, counted from 0, with the lines it replaces and the new ones."""
        if self._at >= len(self._lines):
            return None
        found = _HUNK.match(self._lines[self._at])
        if found is None:
            raise BadDiff(f"line {self._at + 1} of the diff is no hunk: it needs `@@ -1,2 +1,3 @@`")
        self._at += 1
        old_count, new_count = int(found[2] or 1), int(found[4] or 1)
        removed: list[bytes] = []
        added: list[bytes] = []
        while len(removed) < old_count or len(added) < new_count:
            self._take(removed, added)
        if (len(removed), len(added)) != (old_count, new_count):
            raise BadDiff(
                f"the hunk before line {self._at + 1} of the diff has other lines than"
                " its `@@` says"
            )
        self._mark_end(removed, added)
        first = int(found[1])
        return (first if not old_count else first - 1), removed, added

    def _take(self, removed: list[bytes], added: list[bytes]) -> None:
        if self._at >= len(self._lines):
            raise BadDiff("the diff ends in the middle of a hunk")
        line = self._lines[self._at]
        sign, text = line[:1], line[1:] + b"\n"
        if sign in (b" ", b""):
            removed.append(text)
            added.append(text)
        elif sign == b"-":
            removed.append(text)
        elif sign == b"+":
            added.append(text)
        elif sign == _NO_NEWLINE:
            self._cut(removed, added, self._lines[self._at - 1][:1])
        else:
            raise BadDiff(f"line {self._at + 1} of the diff begins with {sign!r}")
        self._at += 1

    def _mark_end(self, removed: list[bytes], added: list[bytes]) -> None:
        """A mark after the last line of a hunk says that it has no line feed."""
        if self._at < len(self._lines) and self._lines[self._at].startswith(_NO_NEWLINE):
            self._cut(removed, added, self._lines[self._at - 1][:1])
            self._at += 1

    def _cut(self, removed: list[bytes], added: list[bytes], sign: bytes) -> None:
        for lines, signs in ((removed, b" -"), (added, b" +")):
            if lines and sign in (signs[:1], signs[1:]):
                lines[-1] = lines[-1].removesuffix(b"\n")
