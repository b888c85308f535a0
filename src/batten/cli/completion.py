"""`batten completion`: scripts for bash, zsh and fish, made from the parsers of all commands.

Names of runs and models change: the scripts ask for them with `batten completion --list`.
"""

import argparse
import os
import shlex
from argparse import Namespace
from collections.abc import Callable, Iterator

from msgspec import Struct

from batten.cli import COMMANDS
from batten.cli.arguments import headless_parser, parser
from batten.cli.commands import command_parsers
from batten.cli.completion_scripts import BASH, FISH, ZSH
from batten.cli.parsing import Parser, UsageError
from batten.contract.errors import NotFound

_NEWEST = 100
_PRINT = "-"
"""The name of print mode, which has no command, in the tables of the scripts."""
_KINDS = (
    ("PROVIDER/MODEL", "model"),
    ("RUN", "run"),
    ("SESSION", "session"),
    ("REQUEST", "request"),
    ("COMMAND", "command"),
    ("FILE", "file"),
    ("DIR", "dir"),
    ("PATH", "file"),
)


class Place(Struct, frozen=True):
    """A flag or a position of a command, and what can stand there."""

    names: tuple[str, ...]
    """The spellings of a flag; for a position, its number or `*` for all that follow."""
    kind: str
    """`none` for a flag without a value; `words …`; `text` for anything; else the kind of names."""
    about: str


async def print_completion(options: Namespace) -> int:
    if options.list is not None:
        return await _list(options.list)
    if options.shell is None:
        raise UsageError("name the shell: batten completion bash|zsh|fish")
    print(_SCRIPTS[options.shell](_places()), end="")
    return 0


def _places() -> dict[str, list[Place]]:
    """Every command with its flags and positions; print mode first."""
    from batten.cli.conformance import command_line

    made: dict[str, Parser] = {_PRINT: parser(), "headless": headless_parser()}
    made |= {"conformance": command_line(), **command_parsers()}
    return {name: list(_places_of(one)) for name, one in made.items()}


def _places_of(made: Parser) -> Iterator[Place]:
    position = 0
    for action in made._actions:  # pyright: ignore[reportPrivateUsage]  # argparse lists them nowhere else
        about = "" if action.help is None else " ".join(action.help.split())
        if action.option_strings:
            kind = "none" if action.nargs == 0 else _kind(action)
            yield Place(tuple(action.option_strings), kind, about)
        else:
            position += 1
            many = action.nargs in ("*", "+")
            yield Place(("*" if many else str(position),), _kind(action), about)


def _kind(action: argparse.Action) -> str:
    if action.choices is not None:
        return "words " + " ".join(map(str, action.choices))
    metavar = str(action.metavar or "")
    return next((kind for part, kind in _KINDS if part in metavar), "text")


def _bash(places: dict[str, list[Place]]) -> str:
    flags = [(name, " ".join(_flags(found))) for name, found in places.items()]
    return _filled(BASH, flags=_cases(flags), kinds=_cases(_kind_rows(places)))


def _zsh(places: dict[str, list[Place]]) -> str:
    described = (
        (name, "\n".join(_described(one) for one in found if one.names[0].startswith("-")))
        for name, found in places.items()
    )
    commands = "\n".join(f"    {shlex.quote(f'{name}:{COMMANDS[name]}')}" for name in COMMANDS)
    return _filled(
        ZSH, flags=_cases(described), kinds=_cases(_kind_rows(places)), describe=commands
    )


def _fish(places: dict[str, list[Place]]) -> str:
    lines = [
        f"complete -c batten -n __batten_needs_command -a {name} -d {_fish_quote(about)}"
        for name, about in COMMANDS.items()
    ]
    for name, found in places.items():
        test = "__batten_in_print_mode" if name == _PRINT else f"__batten_in {name}"
        for place in found:
            words = ["complete -c batten", f"-n {_fish_quote(test)}"]
            for spelling in place.names if place.names[0].startswith("-") else ():
                long = spelling.startswith("--")
                words.append(f"-l {spelling[2:]}" if long else f"-s {spelling[1:]}")
            words += _fish_values(place)
            if len(words) > 2:
                lines.append(" ".join([*words, f"-d {_fish_quote(place.about)}"]))
    return _filled(FISH, complete="\n".join(lines))


def _fish_values(place: Place) -> list[str]:
    is_flag = place.names[0].startswith("-")
    required = ["-r"] if is_flag and place.kind != "none" else []
    match place.kind.split(" ", 1):
        case ["none"]:
            return []
        case ["text"]:
            return [*required, "-f"] if is_flag else []
        case ["file"]:
            return [*required, "-F"]
        case ["dir"]:
            return [*required, "-a '(__fish_complete_directories (commandline -ct))'"]
        case ["words", words]:
            return [*required, f"-a {_fish_quote(words)}"]
        case [kind, *_]:
            return [*required, f"-a '(__batten_list {kind})'"]
        case _:
            return []


_SCRIPTS: dict[str, Callable[[dict[str, list[Place]]], str]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}


def _filled(script: str, **parts: str) -> str:
    names = " ".join(COMMANDS)
    for name, text in {"commands": names, **parts}.items():
        script = script.replace(f"@{name}@", text)
    return script


def _flags(places: list[Place]) -> list[str]:
    return [name for place in places for name in place.names if name.startswith("-")]


def _kind_rows(places: dict[str, list[Place]]) -> Iterator[tuple[str, str]]:
    """Each flag with a value, and each position, with what can stand there."""
    for name, found in places.items():
        for place in found:
            for spelling in place.names:
                if place.kind != "none":
                    yield f"{name} {spelling}", place.kind


def _cases(rows: "Iterator[tuple[str, str]] | list[tuple[str, str]]") -> str:
    return "\n".join(f"    {shlex.quote(key)}) echo {shlex.quote(text)} ;;" for key, text in rows)


def _described(place: Place) -> str:
    return "\n".join(f"{name}:{place.about.replace(':', ';')}" for name in place.names)


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


async def _list(kind: str) -> int:
    """Print the names that a script offers, one a line; nothing without a store."""
    if kind == "command":
        names: list[str] = list(COMMANDS)
    elif kind == "model":
        from batten.cli.models import full_names

        names = full_names(os.environ)
    else:
        names = await _stored(kind)
    for name in names:
        print(name)
    return 0


async def _stored(kind: str) -> list[str]:
    from batten.cli.inspection import open_journal
    from batten.session.naming import LAST

    try:
        journal = open_journal(read_only=True)
    except NotFound:
        return []
    if kind == "request":
        names = [row.request_id for row in await journal.pending_requests(limit=_NEWEST)]
    elif kind == "session":
        names = [row.session_id for row in await journal.sessions(limit=_NEWEST)]
    else:
        names = [row.run_id for row in await journal.runs(limit=_NEWEST)]
    return [LAST, *names] if names else []
