"""Whether a rule about files is about a command line: by the words that name files, by what holds
them, and by what a command searches.
"""

import os
import re
from collections.abc import Sequence
from itertools import pairwise

from batten.agent.rules import commands, globs
from batten.agent.rules.paths import absolute, matches_path
from batten.agent.rules.reading import reading
from batten.agent.rules.reading_found import Reading
from batten.agent.rules.rule import Rule, pattern_of
from batten.agent.rules.shell import HOLE, NAMES, TILDE, SimpleCommand, name_set
from batten.agent.rules.tree import Tree, Unseen

_WRITERS = name_set(
    "cp mv rm rmdir mkdir touch tee ln install truncate dd sed perl chmod chown chgrp patch "
    "rsync shred unlink split csplit tar unzip gzip gunzip zip bzip2 xz zstd rename ed ex script"
)
"""Programs whose operands are files that they may write."""
_GIT_WRITES = name_set("checkout restore clean rm mv apply reset stash checkout-index")
_TARGET = re.compile(r"-(?:o|O|P|out|-output|-output-d\w+|-directory-prefix|-out\w*)(?:=(.*))?")
"""Options of many programs whose value is a file, or a folder of files, to write."""
_VIEWERS = name_set(
    "cat tac head tail less more nl bat xxd od hexdump strings base64 base32 cp mv grep egrep "
    "fgrep rg sort uniq sed awk gawk mawk cut paste rev fold fmt pr column diff comm join jq "
    "zcat dd tee source ."
)
"""Programs whose operands are files that they show or copy."""
_WITH_TEXT = name_set("grep egrep fgrep rg sed awk gawk mawk perl jq")
"""Programs whose first operand is a pattern or a script."""
_TAKE_FOLDERS = name_set("cp tar bsdtar zip 7z 7za rsync scp cpio pax diff grep rg ag ack ugrep")
"""Programs whose operands may be folders whose files they show or copy."""
_ENTERS = (("cd",), ("pushd",))
_MOST_FOLDERS = 32
_HOME = re.compile(r"HOME(?:\+?=|$)")


def is_reader(rule: Rule) -> bool:
    return pattern_of(rule).tool in ("read_file", "grep", "glob")


def matches_file(rule: Rule, path: str, workspace: str) -> bool:
    pattern = pattern_of(rule).rest.strip()
    return matches_path(pattern, path, workspace, widely=rule.action != "allow")


def touches(rule: Rule, line: commands.CommandLine, workspace: str) -> commands.Chance:
    """Whether a rule about files is about one that a command names to read it or to write to it.

    Of programs that we do not know, every word counts as a file that is read.
    """
    reads = is_reader(rule)
    places = _Places(rule, line, workspace)
    chance: commands.Chance = "no"
    for command in line.all_commands:
        found = reading(command.words)
        opened = [each.target for each in command.redirects if each.operator in ("<", "<>")]
        if reads:
            words = [*(command.words[1:] if found is None else found.paths), *opened]
        else:
            words = _written(command, found)
        chances = [places.of(word) for word in words]
        if "yes" in chances:
            return "yes"
        values = [places.of(value) for _, value in command.assignments]
        if "maybe" in chances or (reads and values.count("no") < len(values)):
            chance = "maybe"
        if reads and (_has_hole(opened) or places.may_show(command.words, found)):
            chance = "maybe"
        if not reads and _has_hole(words):
            chance = "maybe"
    return chance


class _Places:
    """The files that words of one line may lead to, held against a rule."""

    def __init__(self, rule: Rule, line: commands.CommandLine, workspace: str) -> None:
        self._rule = rule
        self._workspace = workspace
        self._real_workspace = os.path.realpath(workspace or "/")
        self._tree: Tree | None = None
        self._folders = _folders(line)
        self._is_home_moved = any(
            name == "HOME" for each in line.all_commands for name, _ in each.assignments
        ) or any(_HOME.match(word) for each in line.all_commands for word in each.words)
        self._is_linked = len(line.all_commands) > 1 and any(
            self._links_above(each) for each in line.all_commands
        )

    def of(self, word: str) -> commands.Chance:
        """Whether the rule is about a file that this word names."""
        if TILDE in word:
            return "maybe"
        chance: commands.Chance = "no"
        for path in _paths_in(word):
            if path[0] == "~" and self._is_home_moved:
                return "maybe"
            # Behind a hole, what follows it may be a path from here.
            known = path.rpartition(HOLE)[2]
            is_tail = known != path and known[:1] == "/"
            for each in self._from_folders(known.lstrip("/") if is_tail else path):
                if self._is_about(each):
                    if not is_tail:
                        return "yes"
                    chance = "maybe"
                if NAMES in each and self._may_be_named(each):
                    chance = "maybe"
        return chance

    def may_show(self, words: tuple[str, ...], found: Reading | None) -> bool:
        """Whether a command may show a file of the rule without naming it: by a name that is not
        known before, by a search through the folders above it, or by a link."""
        if not words:
            return False
        name = words[0].rpartition("/")[2]
        if name in _VIEWERS and _has_hole(_operands(words)):
            return True
        if self._is_linked and (found is None or found.paths or found.is_recursive):
            return True
        if found is None:
            return name in _TAKE_FOLDERS and any(map(self._holds, _operands(words)))
        if found.follows and any(map(self._holds, found.tops)):
            return True
        return found.is_recursive and any(map(self._is_above, (*found.paths, *found.tops)))

    def _is_about(self, path: str) -> bool:
        """Whether the rule is about a path: as it is written, and where its links lead."""
        ways = [path]
        if HOLE not in path:
            whole = absolute(path, self._workspace)
            ways.append(os.path.realpath(whole))
            if ".." in path.split("/"):
                # The system follows a link before it goes up.
                ways.append(os.path.realpath(os.path.join(self._workspace or "/", path)))
        return any(map(self._matches, ways))

    def _matches(self, path: str) -> bool:
        """Whether the rule is about a path as it stands there, or about all that is below it."""
        return any(
            matches_file(self._rule, each, workspace)
            for each in (path, f"{path}/{NAMES}")
            for workspace in dict.fromkeys((self._workspace, self._real_workspace))
        )

    def _from_folders(self, path: str) -> list[str]:
        """A path from each folder where the line may be working."""
        if path[:1] in ("/", "~", "-"):
            return [path]
        return [folder + path for folder in self._folders]

    def _may_be_named(self, path: str) -> bool:
        """Whether wildcards may stand for a file of the rule, on disk or one that comes to be."""
        if self._may_come_to_be(path):
            return True
        if HOLE in path:
            return False
        try:
            found = self._look().named(absolute(path, self._workspace), widely=True)
        except Unseen:
            return True
        return any(self._is_about(each.path) for each in found)

    def _may_come_to_be(self, path: str) -> bool:
        """Whether wildcards may stand for a file of the rule, going by the pattern alone."""
        top = self._top()
        before = path[: path.find(NAMES)].rpartition("/")[0]
        if top is not None and HOLE not in before:
            folder = absolute(before, self._workspace).rstrip("/") + "/"
            return top.startswith(folder) or folder.startswith(top)
        last = pattern_of(self._rule).rest.strip().rstrip("/").rpartition("/")[2]
        return any(globs.may_match(last, part) for part in path.split("/"))

    def _is_above(self, path: str) -> bool:
        """Whether files of the rule may be below a folder, going by the pattern alone."""
        top = self._top()
        folder = absolute(path, self._workspace).rstrip("/") + "/"
        return top is None or top.startswith(folder)

    def _top(self) -> str | None:
        """The folder in which the pattern begins, with a slash; None if it is about any folder."""
        pattern = pattern_of(self._rule).rest.strip()
        if "/" not in pattern.rstrip("/") or pattern.startswith("**/"):
            return None
        start = globs.literal_start(pattern).rpartition("/")[0]
        top = absolute(start[1:] if start.startswith("//") else start, self._workspace)
        return top.rstrip("/") + "/"

    def _holds(self, path: str) -> bool:
        """Whether a file of the rule is below a folder now, or behind a link in it."""
        if HOLE in path or NAMES in path:
            path = path[: min(path.find(each) for each in (HOLE, NAMES) if each in path)]
            path = path.rpartition("/")[0] or "."
        try:
            return any(
                self._is_about(entry.path) if entry.is_symlink() else self._matches(entry.path)
                for folder in self._from_folders(path)
                for entry in self._look().below(absolute(folder, self._workspace))
            )
        except Unseen:
            return True

    def _links_above(self, command: SimpleCommand) -> bool:
        """Whether a command makes a link to a folder above a file of the rule."""
        if command.words[:1] not in (("ln",), ("/bin/ln",), ("/usr/bin/ln",)):
            return False
        # From the folder of the link, which may be any.
        operands = [word for word in command.words[1:] if word[:1] != "-"]
        return any(
            HOLE in word or set(word) <= set("./") or self._is_above(word) for word in operands
        )

    def _look(self) -> Tree:
        self._tree = self._tree or Tree()
        return self._tree


def _folders(line: commands.CommandLine) -> list[str]:
    """What may stand before a path of a line: nothing, and the folders that it changes to."""
    entered = [each.words for each in line.all_commands if each.words[:1] in _ENTERS]
    found = [""]
    for words in entered:
        for folder in words[1:2] or ("~",):
            if folder[:1] in ("/", "~"):
                found.append(f"{folder}/")
            else:
                found += [f"{each}{folder}/" for each in found]
        if len(found) > _MOST_FOLDERS:
            break
    return list(dict.fromkeys(found))[:_MOST_FOLDERS]


def _written(command: SimpleCommand, found: Reading | None) -> list[str]:
    """The words of a command that may be files it writes."""
    opened = [each for each in command.redirects if each.operator not in ("<", "<<", "<<<", "<&")]
    words = [each.target for each in opened if not re.fullmatch(r"[0-9]+-?|-", each.target)]
    name, *rest = command.words or ("",)
    if found is not None:
        return words
    # Those that otherwise only read have an operand or option for a file to write.
    if name in _WRITERS or name in ("find", "sort", "uniq", "xxd", "tree"):
        return [*words, *_operands(command.words)]
    if name == "git" and rest and rest[0] in _GIT_WRITES:
        return [*words, *rest[1:]]
    for word, following in pairwise((*rest, "")):
        if option := _TARGET.fullmatch(word):
            words.append(option[1] or following)
    return words


def _operands(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words that may be files: not the pattern or script of `grep`, `sed` and the like."""
    if words[0] not in _WITH_TEXT:
        return words[1:]
    first = next((at for at, word in enumerate(words) if at and word[:1] != "-"), len(words))
    return (*words[1:first], *words[first + 1 :])


def _has_hole(words: Sequence[str]) -> bool:
    return any(HOLE in word for word in words)


def _paths_in(word: str) -> list[str]:
    """The paths that a word may hold: `a`, `--file=a`, `-fa`, `@a` as curl reads it, `a:b`."""
    value = word.rpartition("=")[2]
    if value.startswith("-"):
        value = "" if value.startswith("--") else value[2:]
    parts = dict.fromkeys((value, *value.split(":"), *re.split("[@<]", value)[1:]))
    return [part for part in parts if part]
