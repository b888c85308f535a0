"""Glob patterns on relative paths. Wildcards also match names that begin with a dot.

`*`, `?` and `[…]` stay within a name, `**` crosses directories. Does not touch the file system.
"""

import re

from batten.contract.errors import CallerError

_MAX_ALTERNATIVES = 256


def path_glob(pattern: str) -> re.Pattern[str]:
    """A pattern for a whole relative path; braces are literal."""
    return _compiled([pattern])


def file_glob(pattern: str) -> re.Pattern[str]:
    """A pattern for finding files: without `/` it matches in any directory; expands `{a,b}`."""
    alternatives = _expanded(pattern.removeprefix("./"))
    return _compiled([each if "/" in each else "**/" + each for each in alternatives])


def _compiled(patterns: list[str]) -> re.Pattern[str]:
    try:
        return re.compile("|".join(f"(?:{_regex(pattern)})" for pattern in patterns), re.DOTALL)
    except re.error as error:
        raise CallerError(
            f"Not a glob pattern: {patterns[0]!r}: {error}", code="invalid_pattern"
        ) from None


def _regex(pattern: str) -> str:
    """Each wildcard matches as little as possible and never backtracks (atomic groups): the first
    place where the next piece matches is always good enough, so no pattern is slow."""
    runs: list[list[str]] = [[]]
    for segment in pattern.split("/"):
        if segment == "**":
            runs.append([])
        else:
            runs[-1].append(_segment(segment))
    first, *rest = runs
    if not rest:
        return "/".join(first)
    *middle, last = rest
    head = "".join(name + "/" for name in first)
    between = "".join(f"(?>(?:[^/]++/)*?{'/'.join(run)}/)" for run in middle if run)
    return head + between + (f"(?:[^/]++/)*{'/'.join(last)}" if last else ".+")


def _segment(segment: str) -> str:
    pieces = [""]
    at = 0
    while at < len(segment):
        if segment[at] == "*":
            pieces.append("")
            at += 1
        else:
            letter, at = _letter(segment, at)
            pieces[-1] += letter
    first, *rest = pieces
    if not rest:
        return first
    *middle, last = rest
    return first + "".join(f"(?>[^/]*?{piece})" for piece in middle if piece) + "[^/]*" + last


def _letter(segment: str, at: int) -> tuple[str, int]:
    """The regex for one character, and the index of the next."""
    letter = segment[at]
    if letter == "?":
        return "[^/]", at + 1
    if letter == "[":
        close = segment.find("]", at + 2)
        if close > 0:
            inner = segment[at + 1 : close]
            negated = inner[:1] in ("!", "^")
            members = inner[negated:].replace("\\", "\\\\").replace("[", "\\[")
            members = members.replace("&&", "&\\&").replace("~~", "~\\~").replace("||", "|\\|")
            members = members[:1] + members[1:].replace("--", "-\\-")
            return f"(?!/)[{'^' * negated}{members}]", close + 1
    if letter == "\\" and at + 1 < len(segment):
        return re.escape(segment[at + 1]), at + 2
    return re.escape(letter), at + 1


def _expanded(pattern: str) -> list[str]:
    """`pattern` with its braces expanded; unclosed braces are literal."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        each = waiting.pop()
        found = re.search(r"\{([^{}]*,[^{}]*)\}", each)
        if found is None:
            done.append(each)
        else:
            head, tail = each[: found.start()], each[found.end() :]
            waiting += [head + choice + tail for choice in reversed(found[1].split(","))]
        if len(done) + len(waiting) > _MAX_ALTERNATIVES:
            raise CallerError(
                f"Glob pattern has more than {_MAX_ALTERNATIVES} alternatives: {pattern!r}",
                code="invalid_pattern",
            )
    return done
