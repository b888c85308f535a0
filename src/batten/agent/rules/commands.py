"""Command lines under rules: which commands a pattern is about, and whether a line is allowed.

A pattern allows one simple command; a line is allowed if each of its commands is, by a pattern or
because it only reads. A pattern denies a line if it matches any command of it, also one that is
run by another. `*` never stands for an operator of the shell, nor for the program that `sudo`,
`env` or `bash -c` run.
"""

import os
import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from batten.agent.rules import globs
from batten.agent.rules.embedded import piped
from batten.agent.rules.inner import ANYTHING, Runs
from batten.agent.rules.paths import absolute, guarded_name, relative
from batten.agent.rules.reading import reading
from batten.agent.rules.reading_found import Reading
from batten.agent.rules.running import runs, without_commands
from batten.agent.rules.running_variables import value_runs
from batten.agent.rules.shell import (
    FOUND,
    HOLE,
    NAMES,
    PIPE,
    Line,
    Redirect,
    SimpleCommand,
    read_line,
)
from batten.agent.rules.tree import Tree, Unseen, makes_links, makes_names
from batten.agent.rules.unread import OPERATORS, seen, unquoted
from batten.agent.rules.variables import is_harmless_variable

Chance = Literal["no", "maybe", "yes"]

_BLANK = "\x02"
"""A blank within a word."""
_EMPTY = "\x03"
_WITHIN = str.maketrans(dict.fromkeys(" \t\n", _BLANK))
_MOST_COMMANDS = 300
_HARMLESS_TARGETS = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2"))


class CommandLine(Struct, frozen=True):
    """A line with all that it runs, as far as that can be seen."""

    text: str
    line: Line | None
    """None if the line cannot be read for certain."""
    all_commands: tuple[SimpleCommand, ...]
    """Those of the line, and those that they run."""
    unread: tuple[str, ...] = ()
    """What cannot be read for certain: the line itself, or lines that it runs."""


@lru_cache(maxsize=256)
def command_line(text: str) -> CommandLine:
    read = read_line(text)
    line = read if isinstance(read, Line) else None
    found, unread = _closure(seen(text) if line is None else line.commands)
    given, _ = _closure(piped(text, found))
    texts = (text, *unread) if line is None else unread
    return CommandLine(text, line, (*found, *given), texts)


def _closure(
    commands: Iterable[SimpleCommand],
) -> tuple[tuple[SimpleCommand, ...], tuple[str, ...]]:
    """Commands with those that they run, and so on; and the lines they run that cannot be read."""
    unread: list[str] = []
    found = dict.fromkeys(commands)
    waiting = list(found)
    while waiting:
        if len(found) > _MOST_COMMANDS:
            # More than anybody writes: whatever else it runs is not known.
            found[ANYTHING] = None
            break
        command = waiting.pop()
        run = runs(command)
        unread += (run.unread,) if run.unread else ()
        # What a shell reads from a pipe may be any command.
        inside = run.commands if run.is_known or run.commands else (ANYTHING,)
        values = [value_runs(*each, command.words) for each in command.assignments]
        for inner in (*inside, *(each for value in values for each in value)):
            if inner not in found:
                found[inner] = None
                waiting.append(inner)
    return tuple(found), tuple(unread)


def canonical(pattern: str) -> str:
    """A pattern as it is compared: without quotes, and blanks within them apart from others.

    `make:*` is `make *`.
    """
    if pattern.endswith(":*"):
        pattern = pattern[:-2] + " *"
    pattern = pattern.strip()
    pieces: list[str] = []
    quote = ""
    for character in pattern:
        if quote:
            if character == quote:
                quote = ""
            else:
                pieces.append(_BLANK if character in " \t\n" else character)
        elif character in "'\"":
            quote = character
        else:
            pieces.append(character)
    return pattern if quote else "".join(pieces)


def text_of(command: SimpleCommand) -> str:
    """The words of a command as patterns see them."""
    return " ".join(word.translate(_WITHIN) or _EMPTY for word in command.words)


def concerns(pattern: str, line: CommandLine) -> Chance:
    """Whether a rule that denies or asks is about a line: one command is enough."""
    globs_ = _spellings(pattern)
    if any(globs.matches(glob, line.text) for glob in (pattern, pattern.strip())):
        return "yes"
    chance: Chance = "no"
    for command in line.all_commands:
        for text in _spelled(command):
            if any(globs.matches(glob, text) for glob in globs_):
                return "yes"
            if any(globs.may_match(glob, text) for glob in globs_):
                chance = "maybe"
    if chance == "no":
        program = globs.literal_start(canonical(pattern)).partition(" ")[0]
        plain = "\n".join(unquoted(text.replace("\\\n", "")) for text in line.unread)
        if line.unread and (program in plain or "eval" in plain):
            return "maybe"
    return chance


def _spellings(pattern: str) -> tuple[str, ...]:
    """`make *` is about bare `make` too, and so is `make:*`."""
    glob = canonical(pattern)
    found = [glob]
    if glob.endswith(" *"):
        found.append(glob[:-2])
    if pattern.endswith(":*"):
        found.append(pattern)
    return tuple(found)


def _spelled(command: SimpleCommand) -> set[str]:
    """All that a command may be known by to a rule that denies it."""
    texts = {text_of(command), command.source, " ".join(command.words)}
    if command.words and "/" in command.words[0]:
        base = command.words[0].rpartition("/")[2]
        texts.add(" ".join((base, *command.words[1:])))
    return {text for text in texts if text}


class Allowance(Struct, frozen=True):
    """What is needed to judge whether a line is allowed."""

    patterns: tuple[str, ...]
    """Of rules that allow commands."""
    workspace: str
    reads: bool
    """Whether commands that only read are allowed beside the patterns."""
    may_read: Callable[[str, bool], bool]
    """Whether no rule keeps a path from being read; the flag: also what is below it."""
    may_write: Callable[[str], bool]
    """Whether a rule allows a file to be written."""


def is_whole(pattern: str, text: str) -> bool:
    """Whether a pattern without wildcards is exactly this line."""
    exact = globs.literal(pattern)
    return exact is not None and exact.strip() == text.strip()


def allowing(allowance: Allowance, line: CommandLine) -> tuple[str, ...] | None:
    """The patterns by which a line is allowed, none if it only reads; None if it is not allowed."""
    for pattern in allowance.patterns:
        if is_whole(pattern, line.text):
            return (pattern,)
        if OPERATORS.search(pattern) and globs.matches_plainly(pattern, line.text.strip()):
            return (pattern,)
    if line.line is None or not line.line.commands:
        return None
    return _Judge(allowance, line.all_commands).all(line.line.commands)


class _Judge:
    """Goes through the commands of one line, in their order."""

    def __init__(self, allowance: Allowance, all_commands: Iterable[SimpleCommand]) -> None:
        self._allowance = allowance
        self._links_change = any(map(makes_links, all_commands))
        """Whether a command of the line may make a link: what a path leads to is not known then."""
        self._names_change = any(map(makes_names, all_commands))
        self._tree: Tree | None = None
        self._folders = {allowance.workspace or "/"}
        """Where commands may be working by now."""

    def all(self, commands: Iterable[SimpleCommand], depth: int = 0) -> tuple[str, ...] | None:
        used: list[str] = []
        for command in commands:
            found = self._one(command, depth)
            if found is None:
                return None
            used += found
        return tuple(used)

    def _one(self, command: SimpleCommand, depth: int) -> tuple[str, ...] | None:
        inner = runs(command)
        if depth > 8 or not (inner.is_known or inner.commands):
            # It runs what is not known at all: a variable, what a shell reads from a pipe.
            return None
        spelled_out = self._spelled_out(command)
        if spelled_out is not None:
            return (spelled_out,)
        if not self._harmless_surroundings(command):
            return None
        if not command.words:
            return () if self._allowance.reads else None
        pattern = self._pattern(command, inner)
        if pattern is not None:
            return (pattern,)
        if inner.commands or not inner.is_known:
            if not inner.is_known:
                return None
            used = self.all(inner.below or inner.commands, depth + 1)
            if inner.below and not self._finds_inside(command.words):
                return None
            if used is None or inner.is_wrapper:
                return used
            outer = self._pattern(command, Runs())
            only_reads = outer is None and command.words[0] == "find" and self._finds(command)
            return None if outer is None and not only_reads else (*used, *filter(None, (outer,)))
        found = reading(command.words) if self._allowance.reads else None
        if found is None or not self._may(found):
            return None
        if command.words[0] == "cd":
            self._folders |= {absolute(found.paths[0], folder) for folder in self._folders}
        return ()

    def _finds(self, command: SimpleCommand) -> bool:
        """Whether `find` itself only reads, apart from what it runs."""
        rest = without_commands(command.words)
        found = reading(rest)
        return found is not None and self._may(found)

    def _finds_inside(self, words: tuple[str, ...]) -> bool:
        """Whether no file that `find` may give to a command is a link that leads outside."""
        found = reading(without_commands(words))
        if found is None:
            return False
        tests: dict[str, str] = {}
        if not {"-o", "-or", ",", "("} & set(words) and not found.follows:
            tests = {
                test: value
                for before, test, value in zip(words, words[1:], words[2:], strict=False)
                if test in ("-type", "-name") and before not in ("!", "-not")
            }
        if tests.get("-type") == "f":
            # No link is a file, unless it is followed.
            return True
        return self._links_stay(found.tops, tests.get("-name", "*"), follow=found.follows)

    def _links_stay(self, paths: tuple[str, ...], names: str = "*", *, follow: bool) -> bool:
        """Whether every link of these names below folders leads to a place that may be read.
        `follow`: links behind links count too."""
        # Before a wildcard: the folder that holds all it stands for.
        tops = [
            path.partition(NAMES)[0].rpartition("/")[0] if NAMES in path else path
            for path in paths
            if path != PIPE
        ]
        try:
            return all(
                self._is_open(os.path.realpath(link), below=True)
                for folder in self._folders
                for top in tops
                for link in self._look().links(
                    os.path.join(folder, os.path.expanduser(top)), follow=follow
                )
                if fnmatchcase(os.path.basename(link), names)
            )
        except Unseen:
            return False

    def _spelled_out(self, command: SimpleCommand) -> str | None:
        """A rule that spells out this very command, or its redirections and assignments too."""
        for pattern in self._allowance.patterns:
            if is_whole(pattern, command.source):
                return pattern
            has_more = OPERATORS.search(pattern) or re.match(r"\w+=", pattern)
            if has_more and globs.matches_plainly(pattern, command.source):
                return pattern
        return None

    def _pattern(self, command: SimpleCommand, inner: Runs) -> str | None:
        """A rule that allows the command, without a wildcard for the program that it runs."""
        text = text_of(command)
        before = len(" ".join(text.split(" ")[: inner.at])) + 1 if inner.at else 0
        for pattern in self._allowance.patterns:
            if OPERATORS.search(pattern):
                continue
            glob = canonical(pattern)
            bare = glob[:-2] if glob.endswith(" *") else glob
            if not globs.matches(glob, text) and not globs.matches(bare, text):
                continue
            programs = {*command.words[:1], *command.words[inner.at : inner.at + 1]}
            if ".." not in glob and any(".." in program.split("/") for program in programs):
                continue
            if not inner.at or len(globs.literal_start(glob)) > before:
                return pattern
        return None

    def _harmless_surroundings(self, command: SimpleCommand) -> bool:
        is_alone = not command.words
        return all(
            is_harmless_variable(name, value, is_alone) for name, value in command.assignments
        ) and (all(map(self._harmless_redirect, command.redirects)))

    def _harmless_redirect(self, redirect: Redirect) -> bool:
        target = redirect.target
        if redirect.operator in ("<<", "<<<"):
            return True
        if redirect.operator in (">&", "<&") and re.fullmatch(r"[0-9]+-?|-", target):
            return True
        if target == PIPE:
            # What writes to it or reads from it is judged as a command of its own.
            return True
        if HOLE in target or NAMES in target:
            return False
        if redirect.operator == "<":
            is_known = not self._links_change and self._is_readable(target, below=False)
            return target == "/dev/null" or is_known
        if target in _HARMLESS_TARGETS:
            return True
        if target.startswith("/dev/") or self._links_change:
            return False
        places = [os.path.join(folder, target) for folder in self._folders]
        spellings = (way(place) for place in places for way in (os.path.normpath, os.path.realpath))
        return all(map(self._allowance.may_write, spellings))

    def _may(self, found: Reading) -> bool:
        """Whether all that a command reads is inside the workspace, and no rule is against it."""
        workspace = self._allowance.workspace
        if found.is_git:
            # The configuration of a repository that a file tool can write may run programs.
            at_top = self._folders == {workspace or "/"}
            if not at_top or not os.path.exists(os.path.join(workspace or "/", ".git")):
                return False
        paths = dict.fromkeys((*found.paths, *(found.tops if found.is_recursive else ())))
        if self._links_change and paths and not found.is_git:
            return False
        if not all(self._is_readable(path, below=found.is_recursive) for path in paths):
            return False
        return not found.follows or self._links_stay(found.tops, follow=True)

    def _is_readable(self, path: str, *, below: bool) -> bool:
        if path == PIPE:
            return True
        if path == FOUND:
            return self._is_open(os.path.realpath(self._allowance.workspace or "/"), below=True)
        parts = path.split("/")
        if HOLE in path or any(part[:1] == "." and NAMES in part for part in parts):
            return False
        if NAMES in path and ".." in parts:
            return False
        if path == "~" or path.startswith("~"):
            path = os.path.expanduser(path)
        for folder in self._folders:
            # Links are followed as the system follows them, `..` behind a link too.
            place = os.path.join(folder, path)
            if not self._is_open(os.path.realpath(place), below=below or NAMES in path):
                return False
            if NAMES in path and not self._names_stay(place):
                return False
            if path.startswith(NAMES) and not self._names_are_no_options(folder):
                return False
        return True

    def _names_are_no_options(self, folder: str) -> bool:
        """Whether no file here is named like an option, for a wildcard that begins a word."""
        try:
            return not self._names_change and not self._look().named(f"{folder}/-{NAMES}")
        except Unseen:
            return False

    def _names_stay(self, place: str) -> bool:
        """Whether each name that wildcards stand for leads to a place that may be read."""
        before, _, _ = place.partition(NAMES)
        top = os.path.realpath(before.rpartition("/")[0])
        try:
            found = self._look().named(top + place[before.rfind("/") :])
        except Unseen:
            return False
        linked = (os.path.realpath(each.path) for each in found if each.is_linked)
        return all(self._is_open(path, below=True) for path in linked)

    def _is_open(self, path: str, *, below: bool) -> bool:
        """Whether a path without links is inside the workspace, and no rule is against it."""
        inside = relative(path, os.path.realpath(self._allowance.workspace or "/"))
        return inside is not None and self._allowance.may_read(inside, below)

    def _look(self) -> Tree:
        self._tree = self._tree or Tree()
        return self._tree


def guarded_names(line: CommandLine) -> set[str]:
    """Of files that need a rule of their own, the names that a line may write to."""
    found: set[str] = set()
    folders = [
        each.words[1] for each in line.all_commands if each.words[:1] == ("cd",) and each.words[1:]
    ]
    values = [value for each in line.all_commands for _, value in each.assignments]
    for command in line.all_commands:
        targets = [
            each.target for each in command.redirects if each.operator not in ("<", "<<", "<<<")
        ]
        if command.words[:2] == ("git", "config") and reading(command.words) is None:
            found.add("git config")
        if reading(command.words) is None:
            for before, word in pairwise(("", *command.words)):
                if before == "-i" and command.words[0] == "ssh":
                    # A key, which is read.
                    continue
                if command.words[0] in ("tar", "rsync") and word.startswith("--exclude="):
                    continue
                targets += [word, word.rpartition("=")[2], word.rpartition(":")[2]]
        targets += [
            each.replace(HOLE, value) for each in targets if HOLE in each for value in values
        ]
        targets += [
            f"{folder}/{each}" for each in targets if each[:1] not in "/~-" for folder in folders
        ]
        found |= {name for target in targets if (name := guarded_name(target.rstrip("/")))}
    return found
