"""Writes src/batten/redact/formats.json from `scripts/secret_formats.txt`, in the form in which the
redactor looks for them.

Run it when that list is changed: `python -m scripts.generate_formats`.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from scripts.secret_formats import Format, Part, formats

TARGET = Path(__file__).parent.parent / "src" / "batten" / "redact" / "formats.json"
ANCHORS = "-_./=:~|$!"
LONGEST_PREFIX = 24
HEAD = 60
"""Characters of a token that are compared."""
LEAST = 20
_LONGEST_BEFORE = 16


def written() -> str:
    """The content of the file."""
    prefixes: dict[str, list[list[object]]] = {}
    words: dict[str, list[list[object]]] = {}
    runs: set[str] = set()
    near: dict[str, list[str]] = {}
    for one in formats():
        if one.near:
            for word in one.near:
                found = near.setdefault(word, [])
                found += [pattern for pattern in [whole(one)] if pattern not in found]
            continue
        split = split_of(one.parts)
        if split is None:
            runs.add(whole(one))
            continue
        before, prefix, value = split
        row: list[object] = [before, *value_of(value, one)]
        rows = words if prefix[-1].isalnum() else prefixes
        known = rows.setdefault(prefix[-LONGEST_PREFIX:], [])
        known += [row] if row not in known else []
    starts = sorted({start[0] for word in near if (start := re.match("[a-z]{1,3}", word))})
    sections = [
        f'"prefixes":{rows_of(prefixes)}',
        f'"words":{rows_of(words)}',
        f'"near":{rows_of(near)}',
        f'"near_starts":{json.dumps(starts, separators=(",", ":"))}',
        f'"runs":{rows_of(sorted(runs))}',
    ]
    body = ",\n".join(sections)
    return f"{{\n{body}\n}}\n"


def rows_of(rows: Mapping[str, object] | list[str]) -> str:
    def line(value: object) -> str:
        return json.dumps(value, separators=(",", ":"))

    if isinstance(rows, list):
        return "[\n" + ",\n".join(map(line, rows)) + "\n]"
    return "{\n" + ",\n".join(f"{line(key)}:{line(rows[key])}" for key in sorted(rows)) + "\n}"


def split_of(parts: tuple[Part, ...]) -> tuple[str, str, tuple[Part, ...]] | None:
    """What stands before the mark of a token, the mark, and the value behind it. None if a token
    has no mark near its beginning: it is known by its whole form."""
    before: list[Part] = []
    for place, part in enumerate(parts):
        if sum(len(one.literal) or one.most for one in before) > _LONGEST_BEFORE:
            return None
        if not part.literal or (before and len(part.literal) < 2 and part.literal not in "|~:"):
            before.append(part)
            continue
        value = parts[place + 1 :]
        cut = max(map(part.literal.rfind, ANCHORS)) + 1
        if cut == 0 and before:
            return None
        rest = part.literal[cut:]
        if cut and rest:
            value = (Part(literal=rest), *value)
        prefix = part.literal[: cut or None]
        return "".join(one.pattern for one in before), prefix, value
    return None


def value_of(parts: tuple[Part, ...], one: Format) -> tuple[str, str, bool]:
    """The class of a value's characters, the pattern of its first ones, and whether it must end
    after them."""
    characters = class_of(set("=" if one.padded else "").union(*(one.characters for one in parts)))
    if one.ends and sum(len(part.literal) or part.most for part in parts) <= HEAD:
        return characters, "".join(part.pattern for part in parts) + padding(one), True
    pattern, length = "", 0
    for part in parts:
        part = relaxed(part) if len(parts) == 1 else part
        size = len(part.literal) or part.most
        if length + size > HEAD:
            least = len(part.literal) or part.least
            pattern += part_of(part, min(least, HEAD - length))
            break
        pattern += part.pattern
        length += size
    return characters, pattern, False


def class_of(characters: set[str]) -> str:
    """A class of characters, with ranges."""
    ranges: list[list[str]] = []
    for one in sorted(characters - {"-"}):
        if ranges and one.isalnum() and ord(one) == ord(ranges[-1][-1]) + 1:
            ranges[-1].append(one)
        else:
            ranges.append([one])
    spelled = [f"{run[0]}-{run[-1]}" if len(run) > 2 else "".join(run) for run in ranges]
    return f"[{''.join(spelled)}{'-' if '-' in characters else ''}]"


def relaxed(part: Part) -> Part:
    """Two thirds of a long token are enough behind a mark: logs cut tokens."""
    if part.alphabet == "uuid" or part.least < LEAST:
        return part
    least = max(LEAST, part.least * 2 // 3)
    return Part(alphabet=part.alphabet, least=least, most=max(least, part.most))


def part_of(part: Part, length: int) -> str:
    if part.literal:
        return re.escape(part.literal[:length])
    if part.alphabet == "uuid":
        return r"[a-f0-9\-]{%d}" % length
    return Part(alphabet=part.alphabet, least=length, most=length).pattern


def whole(one: Format) -> str:
    return "".join(part.pattern for part in one.parts) + padding(one)


def padding(one: Format) -> str:
    return "={0,2}" if one.padded else ""


if __name__ == "__main__":
    TARGET.write_text(written(), encoding="utf-8")
