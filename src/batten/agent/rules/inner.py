"""Words and texts read as the commands that they stand for: what programs that run others share."""

import re
from collections.abc import Callable

from msgspec import Struct

from batten.agent.rules.shell import (
    HOLE,
    NAMES,
    Line,
    SimpleCommand,
    is_known,
    name_set,
    read_line,
)
from batten.agent.rules.unread import seen

_MOST_WORDS = 40
"""Words among which the command of such a program is looked for."""
GIT_HARMLESS = re.compile(
    r"user\.(name|email)=|core\.(quotepath|autocrlf|abbrev)=|color\.\w+=|advice\.\w+="
    r"|log\.(date|decorate|follow|abbrevcommit)=|init\.defaultbranch=|(commit|tag)\.gpgsign=false$"
    r"|diff\.(algorithm|renames|noprefix|mnemonicprefix|colormoved|context)=|pull\.(rebase|ff)="
    r"|push\.default=|merge\.conflictstyle=|fetch\.prune=|gc\.auto=|core\.pager=(cat)?$",
    re.IGNORECASE,
)
GIT_ANYTHING = ("-c", "--config", "--template")
"""Options whose values are settings and hooks, not lines that can be read here."""
SHELLS = name_set(
    "bash sh dash zsh ksh ash rbash fish busybox csh tcsh mksh lksh yash posh pwsh xonsh elvish nu"
)
Commands = tuple[SimpleCommand, ...]
ANYTHING = SimpleCommand((HOLE,))
"""A command that is not known at all."""


_ASSIGNED = re.compile(r"([A-Za-z_]\w*(?:%%|\(\))?)\+?=(.*)", re.DOTALL)
"""An assignment among words; bash passes functions on in `BASH_FUNC_name%%`."""


_IS_LINE = re.compile(r"[\s;&|`$/]")
_RUNS_VALUE = r"-.*(?:exec|command|cmd|call|entrypoint|shell|wrapper|tool|eval)"
"""Options of programs that build and run projects whose value is a program."""


class Runs(Struct, frozen=True):
    """What a command runs beside itself."""

    commands: tuple[SimpleCommand, ...] = ()
    is_known: bool = True
    """`commands` is all of it."""
    is_wrapper: bool = False
    """It does nothing of its own: it is allowed if what it runs is."""
    at: int = 0
    """The index of the first word of what is run. A wildcard must not stand for that word."""
    unread: str = ""
    """A line that it runs and that cannot be read for certain."""
    below: tuple[SimpleCommand, ...] = ()
    """The commands of `find`, with paths below a folder where they have holes."""


NOTHING = Runs()
UNKNOWN = Runs(is_known=False, at=1)


class Options(Struct, frozen=True):
    """How a wrapper is read up to the command that it runs."""

    flags: str = ""
    """Short options without a value."""
    values: str = ""
    """Short options with one."""
    words: tuple[str, ...] = ()
    """Long options; one with a value ends in `=`."""
    operands: int = 0
    """Words before the command."""


def anything(words: tuple[str, ...], *, is_known: bool, has_lines: bool = True) -> Runs:
    """Whichever of the words is the command, it is among these. `has_lines`: a word may be a line
    of the shell, or hold one."""
    most = min(len(words), _MOST_WORDS)
    every = (command_of(_cut(words[start:])) for start in range(1, most))
    # A dot is a folder here: no program runs the builtin of this name.
    commands = tuple(command for command in every if command.words[:1] != (".",))
    first = next((at for at, word in enumerate(words) if at and not word.startswith("-")), 1)
    texts = words[1:most] if has_lines else ()
    lines = tuple(each for word in texts for each in lines_in(word, is_project=is_known))
    is_known = is_known and most == len(words)
    return Runs((*commands, *lines), is_known=is_known, at=0 if is_known else first)


def lines_in(word: str, *, is_project: bool) -> Commands:
    """The lines of the shell that a word may hold: `'ls; rm x'`, `--command=rm x`, `-c'rm x'`."""
    name, mark, value = word.partition("=")
    texts = [word] if _IS_LINE.search(word) else []
    if mark and is_project:
        # The values of variables, as in `make CC=gcc`, are read as such.
        texts += [value] if _IS_LINE.search(value) and not _ASSIGNED.fullmatch(word) else []
        texts += [value] if re.search(_RUNS_VALUE, name) else []
    elif mark:
        texts += [value, word.rpartition("=")[2]]
    elif word[:1] == "-" and _IS_LINE.search(word):
        texts += [word[2:], word[3:]]
    found = (each for text in dict.fromkeys(texts) for each in text_runs(text, 0).commands)
    return tuple(each for each in found if not is_project or each.words[:1] != (HOLE,))


def _cut(words: tuple[str, ...]) -> tuple[str, ...]:
    return words if len(words) <= _MOST_WORDS else (*words[:_MOST_WORDS], HOLE)


def command_of(words: tuple[str, ...]) -> SimpleCommand:
    assignments: list[tuple[str, str]] = []
    while words and (found := _ASSIGNED.fullmatch(words[0])):
        assignments.append((found[1], found[2]))
        words = words[1:]
    return SimpleCommand(words, " ".join(words), tuple(assignments))


def text_runs(text: str, at: int) -> Runs:
    """A line that is run as a whole."""
    line = read_line(text) if is_known(text) else "it is not known"
    if not isinstance(line, Line):
        # Part by part, to deny what can be seen of it.
        parts = (part.split() for part in re.split(r"[;&|\n`(){}<>'\"$]+", text))
        commands = (*(command_of(tuple(part)) for part in parts if part), *seen(text))
        return Runs(commands, is_known=False, at=at, unread=text)
    return Runs(line.commands, is_wrapper=True, at=at)


def given(words: tuple[str, ...], at: int) -> Runs:
    """The words from here on: one is a line of the shell, several are a command."""
    inner = words[at:]
    if not inner:
        return NOTHING
    line = text_runs(inner[0], at) if len(inner) == 1 else Runs((command_of(inner),))
    return Runs(line.commands, is_known=line.is_known, at=at, unread=line.unread)


def by_options(
    words: tuple[str, ...],
    options: Options,
    at: int,
    settings: Callable[[str, str], Commands] | None = None,
) -> Runs:
    """The lines of the shell that options give, from this word on. `settings`: what one runs."""
    commands: list[SimpleCommand] = []
    certain, first = True, 0
    while at < len(words) and words[at] != "--":
        word, index = words[at], at
        at += 1
        if word.startswith((HOLE, NAMES)):
            # It may be such an option, so a wildcard must not stand for it.
            first = first or index
            continue
        found = _line_of(word, options)
        if found is None:
            continue
        if found == "" and not word.endswith("="):
            found, index, at = words[at] if at < len(words) else "", at, at + 1
        is_setting = word.startswith(("-c", "--config")) and bool(GIT_HARMLESS.match(found))
        if is_setting:
            continue
        found = found.replace(",", " ") if word == "-wrapper" else found
        line = text_runs(found.removeprefix("exec="), index)
        key, mark, value = found.partition("=")
        is_file = word.startswith("--template")
        commands += line.commands if not (settings and mark) else settings(key, value)
        commands += (ANYTHING,) if is_file else ()
        certain = certain and line.is_known and not word.startswith(GIT_ANYTHING)
        first = first or index
    return Runs(tuple(commands), is_known=certain, at=first) if first else NOTHING


def _line_of(word: str, options: Options) -> str | None:
    """What an option gives to run: "" if that is the next word, None if it runs nothing.

    A long option may be cut short, and short ones may stand in one word.
    """
    name, _, value = word.partition("=")
    if name in options.words:
        return value
    if word.startswith("--"):
        is_one = len(name) > 2 and any(each.startswith(name) for each in options.words)
        return value if is_one else None
    found = re.match(rf"-[A-Za-z]*?[{options.values or ' '}](.*)", word, re.DOTALL)
    return found[1] if found else None
