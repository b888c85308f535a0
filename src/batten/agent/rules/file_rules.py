"""Whether a rule about files is about a command line: by the words that name files, by what holds
them, and by what a command searches.
"""

import os
import re
from collections.abc import Sequence
from itertools import pairwise

from batten.agent.rules import commands, globs
from batten.agent.rules.paths import absolute, matches_path
from batten.agent.rules.reading import Reading, reading
from batten.agent.rules.rule import Rule, pattern_of
from batten.agent.rules.shell import HOLE, NAMES, SimpleCommand, name_set

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
_ENTERS = (("cd",), ("pushd",))


def is_reader(rule: Rule) -> bool:
    return pattern_of(rule).tool in ("read_file", "grep", "glob")


def matches_file(rule: Rule, path: str, workspace: str) -> bool:
    pattern = pattern_of(rule).rest.strip()
    return matches_path(pattern, path, workspace, widely=rule.action != "allow")


def touches(rule: Rule, line: commands.CommandLine, workspace: str) -> commands.Chance:
    """Whether a rule about files is about one that a command names to read it or to write to it.

    Of programs that we do not know, every word counts as a file that is read.
    """
    chance: commands.Chance = "no"
    reads = is_reader(rule)
    folders = [""] if reads else _folders(line)
    for command in line.all_commands:
        found = reading(command.words)
        opened = [each.target for each in command.redirects if each.operator in ("<", "<>")]
        if reads:
            words = [*(command.words[1:] if found is None else found.paths), *opened]
        else:
            written = _written(command, found)
            words = [f"{folder}{word}" for word in written for folder in _before(word, folders)]
        if reads and (_has_hole(opened) or _may_show(rule, command.words, found, workspace)):
            chance = "maybe"
        if not reads and _has_hole(words):
            chance = "maybe"
        for path in (path for word in words for path in _paths_in(word)):
            followed = os.path.realpath(absolute(path, workspace)) if "\0" not in path else path
            ways = (path, f"{path}/{NAMES}", followed, f"{followed}/{NAMES}")
            if any(matches_file(rule, each, workspace) for each in ways):
                return "yes"
            pattern = pattern_of(rule).rest.strip().rpartition("/")[2]
            if NAMES in path and globs.may_match(pattern, path.rpartition("/")[2]):
                chance = "maybe"
    return chance


def _folders(line: commands.CommandLine) -> list[str]:
    """What may stand before a path of a line: nothing, and the folders that it changes to."""
    entered = [each.words for each in line.all_commands if each.words[:1] in _ENTERS]
    return ["", *(f"{folder}/" for words in entered for folder in words[1:2])]


def _before(word: str, folders: list[str]) -> list[str]:
    return folders if word[:1] not in ("/", "~", "-") else [""]


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


def _may_show(rule: Rule, words: tuple[str, ...], found: Reading | None, workspace: str) -> bool:
    """Whether a command may show a file of a rule without naming it: by a name that is not known
    before, or by a search through the folders above it."""
    if words[:1] and words[0] in _VIEWERS and _has_hole(_operands(words)):
        return True
    if found is None or not found.is_recursive:
        return False
    pattern = pattern_of(rule).rest.strip()
    if "/" not in pattern.rstrip("/") or pattern.startswith("**/"):
        return True
    start = globs.literal_start(pattern).rpartition("/")[0]
    top = absolute(start[1:] if start.startswith("//") else start, workspace)
    folders = [absolute(path, workspace).rstrip("/") + "/" for path in found.paths or (".",)]
    return any(f"{top}/".startswith(folder) for folder in folders)
