"""Command lines as values: the simple commands of a line, with what is known before it runs.

`read_line` is strict. It refuses what it does not read exactly as bash does, and a line that it
refuses is allowed by no pattern.
"""

from functools import lru_cache

from msgspec import Struct

HOLE = "\x00"
"""Stands in a word for text that is only known when the line runs: any text, also none, also
several words."""
NAMES = "\x01"
"""Stands in a word for names of files that a wildcard expands to: any text without a slash."""
TILDE = HOLE * 2
"""Stands for the folder that a tilde names, other than home: the current or the last one, one of
the stack, somebody else's home. A hole, and as a path it may be any."""
PIPE = f"/dev/fd/{NAMES}"
"""Stands for the file of a process substitution."""
FOUND = f"./{NAMES}{NAMES}"
"""Stands for a path that `find` gives to a command."""
MAX_LENGTH = 32 * 1024
"""Characters of a line that is read; a longer one is refused."""
MAX_DEPTH = 20
"""Commands within commands."""


class Unclear(Exception):
    """The line, or a part of it, cannot be read for certain; says why."""


class Redirect(Struct, frozen=True):
    operator: str
    target: str
    """A word, or the delimiter of a here-document."""


class SimpleCommand(Struct, frozen=True):
    """A program or builtin with its arguments, as bash would run it."""

    words: tuple[str, ...] = ()
    """Without quotes. Empty if there are only assignments or redirections."""
    source: str = ""
    """As it was written, redirections and assignments included."""
    assignments: tuple[tuple[str, str], ...] = ()
    redirects: tuple[Redirect, ...] = ()


class Line(Struct, frozen=True):
    """Every simple command of a line, in the order in which they are written.

    Commands within substitutions come before the command that they are a part of.
    """

    commands: tuple[SimpleCommand, ...]


@lru_cache(maxsize=256)
def read_line(text: str) -> Line | str:
    """The commands of a line, or the reason why it cannot be read."""
    from batten.agent.rules.reader import Reader

    try:
        return Line(Reader(text).program())
    except Unclear as error:
        return str(error)


def is_known(word: str) -> bool:
    """Whether the word is the same whenever the line runs."""
    return HOLE not in word and NAMES not in word


def name_set(text: str) -> frozenset[str]:
    """Names that a table lists in one text, with blanks between them."""
    return frozenset(text.split())
