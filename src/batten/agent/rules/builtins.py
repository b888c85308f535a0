"""Builtins of the shell that run a file or a text, or change what later words mean."""

import re

from batten.agent.rules.inner import ANYTHING, NOTHING, Commands, Runs, anything, text_runs
from batten.agent.rules.running_variables import is_running
from batten.agent.rules.shell import HOLE, SimpleCommand, is_known, name_set

_DECLARES = name_set("declare typeset local readonly export")
_ASSIGNS = name_set("read mapfile readarray getopts let printf")
"""Those that give values to variables that they name without a mark."""
_STATE = _DECLARES | name_set(
    "alias unalias source . enable hash bind complete compgen compopt fc shopt unset mapfile "
    "readarray let read getopts trap coproc dirs pushd popd caller exec jobs history"
)
_EVALUATES = _STATE | name_set("printf test [ wait")
"""Builtins that evaluate the subscript in the name of a variable."""
_CURRENT = name_set(
    "alias unalias enable hash bind complete shopt declare typeset local readonly export trap "
    "dirs pushd popd caller exec jobs history read mapfile readarray"
)
"""Those that show something, or change nothing, when they are given nothing."""


def builtin(name: str, words: tuple[str, ...]) -> Runs | None:
    """What such a builtin runs; None for others, which run nothing of what they are given."""
    if name in _EVALUATES and (found := _subscripts(words)):
        return found
    if name in _CURRENT and len(words) == 1:
        return NOTHING
    assigned = _assigned(name, words)
    if name not in _STATE:
        return Runs(assigned) if assigned else None
    found = anything(words, is_known=False, has_lines=name not in _DECLARES | _ASSIGNS)
    hidden = (*assigned, *_hidden(name, words))
    return Runs((*found.commands, *hidden), is_known=False, at=found.at)


def _hidden(name: str, words: tuple[str, ...]) -> Commands:
    """What is run of words that are no command themselves."""
    rest = words[1:]
    options = "".join(word for word in rest if word.startswith("-"))
    match name:
        case "alias":
            # Words behind the alias are its arguments.
            lines = (word.partition("=")[2] for word in rest if "=" in word)
            return tuple(c for line in lines for c in text_runs(f"{line} {HOLE}", 0).commands)
        case "hash" if "p" in options and len(rest) > 1:
            return (SimpleCommand((rest[1], HOLE)),)
        case "enable" if "f" in options:
            return (ANYTHING,)
        case "fc" if "l" not in options:
            return (ANYTHING,)
        case "mapfile" | "readarray" if "C" in options:
            values = (re.sub(r"^-\w*?C", "", word) for word in rest)
            return tuple(c for value in values for c in text_runs(value, 0).commands)
        case "declare" | "typeset" | "local" if "n" in options:
            # The other name of a variable.
            names = (word.partition("=")[2] for word in rest)
            return (ANYTHING,) if any(map(is_running, names)) else ()
        case _:
            return ()


def _assigned(name: str, words: tuple[str, ...]) -> Commands:
    """Variables that a builtin gives values which are not known before, as assignments."""
    if name not in _ASSIGNS or (name == "printf" and words[1:2] != ("-v",)):
        return ()
    rest = words[2:3] if name == "printf" else words[1:]
    # What `printf` prints is one of its words, or made of them.
    values = (*words[3:], *(() if all(map(is_known, words)) else (HOLE,)))
    return tuple(
        SimpleCommand((), word, ((word, value),))
        for word in rest
        if is_running(word)
        for value in (values if name == "printf" else (HOLE,))
    )


def _subscripts(words: tuple[str, ...]) -> Runs | None:
    """What is run because a builtin evaluates it: `test -v 'a[$(id)]'`."""
    lines = [text_runs(word, 1) for word in words[1:] if "$(" in word or "`" in word]
    commands = tuple(command for line in lines for command in line.commands)
    return Runs((*commands, *anything(words, is_known=False).commands), False) if lines else None


def evaluated(words: tuple[str, ...]) -> Runs:
    """`eval` joins its words to a line."""
    at = 2 if words[1:2] == ("--",) else 1
    return text_runs(" ".join(words[at:]), at) if len(words) > at else NOTHING
