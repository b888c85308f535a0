"""Glob patterns on relative paths. Wildcards match names that begin with a dot, too.

`*`, `?` and `[…]` stay within a name, `**` crosses directories. No file is touched.
"""

import re

from batten.contract.errors import CallerError

_MAX_ALTERNATIVES = 256


def path_glob(pattern: str) -> re.Pattern[str]:
    """Matches a whole relative path; braces are ordinary characters."""
    return _compiled([pattern])


def file_glob(pattern: str) -> re.Pattern[str]:
    """As people search for files: a pattern without `/` fits in any directory, and `{a,b}`
    stands for either."""
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
    out: list[str] = []
    at = 0
    while at < len(pattern):
        if pattern.startswith("**", at) and (at == 0 or pattern[at - 1] == "/"):
            after = at + 2
            if after == len(pattern):
                out.append(".*")
                break
            if pattern[after] == "/":
                out.append("(?:[^/]+/)*")
                at = after + 1
                continue
        piece, at = _piece(pattern, at)
        out.append(piece)
    return "".join(out)


def _piece(pattern: str, at: int) -> tuple[str, int]:
    """One wildcard or character as a regular expression, and where the next begins."""
    letter = pattern[at]
    if letter == "*":
        while pattern.startswith("*", at):
            at += 1  # a run of stars is one: repeating it would only be slow
        return "[^/]*", at
    if letter == "?":
        return "[^/]", at + 1
    if letter == "[":
        close = pattern.find("]", at + 2)
        if close > 0:
            inner = pattern[at + 1 : close]
            negated = inner[:1] in ("!", "^")
            members = inner[negated:].replace("\\", "\\\\").replace("[", "\\[")
            members = members.replace("&&", "&\\&").replace("~~", "~\\~").replace("||", "|\\|")
            return f"(?!/)[{'^' * negated}{members}]", close + 1
    if letter == "\\" and at + 1 < len(pattern):
        return re.escape(pattern[at + 1]), at + 2
    return re.escape(letter), at + 1


def _expanded(pattern: str) -> list[str]:
    """`pattern` with its braces written out; unclosed ones are ordinary characters."""
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
