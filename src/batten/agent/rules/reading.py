"""Commands that only read, and what they read.

A command is one only if each of its words is known to leave it at that: programs, options and
operands by `programs.py`, scripts by a parser of their language. All others are asked about.
"""

import re
from collections.abc import Callable

from batten.agent.rules import awk_programs, sed_scripts
from batten.agent.rules.git_reading import git
from batten.agent.rules.program_words import Given, Program, Words, given
from batten.agent.rules.programs import PRINTING, PROGRAMS, VERSIONED
from batten.agent.rules.reading_found import Reading
from batten.agent.rules.shell import HOLE, NAMES, PIPE, is_known, name_set
from batten.agent.rules.variables import is_harmless_variable

_FIND_FLAGS = name_set(
    "( ) ! -not -a -and -o -or , -depth -d -daystart -follow -mount -xdev -noleaf -warn -nowarn "
    "-ignore_readdir_race -noignore_readdir_race -empty -executable -readable -writable -false "
    "-true -nouser -nogroup -print -print0 -ls -prune -quit"
)
_FIND_VALUES = name_set(
    "-maxdepth -mindepth -regextype -amin -atime -cmin -ctime -mmin -mtime -fstype -gid -group "
    "-ilname -iname -inum -ipath -iregex -iwholename -links -lname -name -path -perm -regex -size "
    "-type -uid -used -user -wholename -xtype -printf -context"
)
_FIND_NEWER = re.compile(r"-(?:samefile|[ac]?newer|newer[aBcm][aBcm])")
_FIND_NEWER_TIME = re.compile(r"-newer[aBcm]t")
_COLUMN = r"(?!e?env)[a-z_%]+(?:[:=][0-9]*)?"
_COLUMNS = f"{_COLUMN}(?:,{_COLUMN})*"
_PS_MORE = rf"(?: -ww?| --no-headers| --forest| --sort=-?{_COLUMNS})*"
_PS = (
    re.compile(r"(?:(?:-?[acfgjlmrSTuvwxX]+|-[Af]+|[0-9,]+)(?: |$))*"),
    re.compile(rf"-e(?:f[wH]*|F|l|j|lf|o {_COLUMNS}| -o {_COLUMNS})?{_PS_MORE}"),
    re.compile(rf"(?:-?axo|-Ao|-A -o|-o|-p [0-9,]+ -o) {_COLUMNS}(?: -p [0-9,]+)?{_PS_MORE}"),
    re.compile(rf"(?:-?[acfjlrSTuvwxX]+|-A|(?:-f )?-p [0-9,]+){_PS_MORE}"),
)
"""`e` shows the environment of processes, and is what `-e` means wherever `ps` does not understand
all the rest."""
_JQ_NAMED = {"--arg": "text", "--argjson": "text", "--slurpfile": "path", "--rawfile": "path"}
_JQ_LOADS = re.compile(
    r"(?<![.\w])(?:import|include|modulemeta|get_search_list)\b|\$ENV\b|\$__prog"
    r"|(?<![.\w$\"])env\b|(?<=\")env(?!\")"
)
_AWK_VARIABLE = re.compile(r"(?!(?:ARG[CV]|ENVIRON|PROCINFO|BINMODE)=)[A-Za-z_]\w*=.*", re.DOTALL)


def reading(words: Words) -> Reading | None:
    """What a command reads; None if it may do anything else."""
    if not words or not is_known(words[0]):
        return None
    name, rest = words[0], words[1:]
    if len(rest) == 1 and rest[0] in VERSIONED.get(name, ()):
        return Reading()
    if name in PRINTING:
        return Reading()
    special = _SPECIAL.get(name)
    if special is not None:
        return special(rest)
    program = PROGRAMS.get(name)
    if program is None:
        return None
    found = given(program, rest)
    return None if found is None else _reading(program, found)


def _reading(program: Program, found: Given, files: Words = ()) -> Reading | None:
    is_limited = program.most <= len(found.operands)
    skipped = 0 if found.has(program.instead) else program.skipped
    for at, operand in enumerate(found.operands):
        is_one = is_known(operand) or operand == PIPE
        if not is_one and (is_limited or at < skipped):
            # It may be several words.
            return None
        if not re.fullmatch(program.text, operand, re.DOTALL):
            return None
    if len(found.operands) > (0 if program.operands == "none" else program.most):
        return None
    paths = found.operands[skipped:] if program.operands == "paths" else ()
    return Reading(
        (*paths, *found.files, *files),
        paths or (".",),
        is_recursive=program.is_recursive or found.has(program.below),
        follows=program.always_follows or found.has(program.follows),
    )


def _cd(words: Words) -> Reading | None:
    if len(words) != 1 or words[0].startswith("-") or not is_known(words[0]):
        return None
    return Reading((words[0],))


def _printf(words: Words) -> Reading | None:
    """With `-v` and with `%n` it would assign, and `-v` evaluates what it assigns to."""
    if not words or not is_known(words[0]) or words[0][:1] == "-":
        return None
    return None if re.search(r"%[^%a-zA-Z]*[hjlLqtz]*n", words[0].replace("%%", "")) else Reading()


def _test(words: Words) -> Reading | None:
    """`test` and `[`. `-v` evaluates the name it is given, and words may turn out to be `-v`."""
    if any(not is_known(word) or word in ("-v", "-R") for word in words):
        return None
    return Reading()


def _set(words: Words) -> Reading | None:
    known = ("-e", "-u", "-x", "-eu", "-ex", "-eux", "-o", "pipefail", "-euo", "-euxo", "+e", "+x")
    return Reading() if words and all(word in known for word in words) else None


def _command(words: Words) -> Reading | None:
    return Reading() if len(words) > 1 and words[0] in ("-v", "-V") else None


def _export(words: Words) -> Reading | None:
    pairs = [word.partition("=") for word in words]
    is_harmless = all(mark and is_harmless_variable(name, value) for name, mark, value in pairs)
    return Reading() if words and is_harmless else None


def _find(words: Words) -> Reading | None:
    """Places, and an expression of tests that do nothing."""
    if any(HOLE in word or word.startswith(NAMES) for word in words):
        return None
    at, follows = 0, False
    while at < len(words) and (words[at] in ("-H", "-L", "-P") or words[at][:2] == "-O"):
        follows = words[at] == "-L" or (follows and words[at] not in ("-H", "-P"))
        at += 1
    first = at
    while at < len(words) and words[at][:1] not in ("-", "(", ")", "!", ","):
        at += 1
    places, files = words[first:at], list[str]()
    while at < len(words):
        word, value = words[at], words[at + 1 : at + 2]
        at += 1
        if word in _FIND_FLAGS:
            follows = follows or word == "-follow"
            continue
        if word in _FIND_VALUES or _FIND_NEWER_TIME.fullmatch(word):
            pass
        elif _FIND_NEWER.fullmatch(word):
            files += value
        else:
            return None
        if not value:
            return None
        at += 1
    return Reading((*places, *files), places or (".",), follows=follows)


def _sed(words: Words) -> Reading | None:
    program = PROGRAMS["sed"]
    found = given(program, words)
    if found is None:
        return None
    scripts = [each.value for each in found.options if each.name in ("-e", "--expression")]
    script = "\n".join(scripts) if scripts else "".join(found.operands[:1])
    if not is_known(script) or not sed_scripts.only_prints(script):
        return None
    return _reading(program, found)


def _awk(words: Words) -> Reading | None:
    """One program without files, pipes and functions, behind `-F` and `-v`."""
    if any(HOLE in word for word in words):
        return None
    at = 0
    while at < len(words) and words[at].startswith("-"):
        option, value = words[at][:2], words[at][2:]
        at += 1
        if not value:
            value = "".join(words[at : at + 1])
            at += 1
        is_variable = option == "-v" and _AWK_VARIABLE.fullmatch(value)
        if not is_known(value) or not (option == "-F" or is_variable):
            return None
    if at >= len(words) or not is_known(words[at]) or not awk_programs.only_prints(words[at]):
        return None
    files = words[at + 1 :]
    if any(word.startswith("-") and word != "-" for word in files):
        return None
    return Reading(files)


def _jq(words: Words) -> Reading | None:
    """A program that loads a module reads a file that it names in its own language."""
    rest: list[str] = []
    files: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        kind = _JQ_NAMED.get(word)
        taken = words[at : at + (3 if kind else 2 if word == "--indent" else 1)]
        at += len(taken)
        if word == "--" or (kind and (len(taken) < 3 or not all(map(is_known, taken)))):
            return None
        if kind is None:
            rest += taken
        elif kind == "path":
            files.append(taken[2])
    program = PROGRAMS["jq"]
    found = given(program, tuple(rest))
    if found is None or any(_JQ_LOADS.search(each) for each in found.operands[:1]):
        return None
    return _reading(program, found, tuple(files))


def _xxd(words: Words) -> Reading | None:
    plain = ("-ps", "-plain", "-postscript")
    program = PROGRAMS["xxd"]
    found = given(program, tuple("-p" if word in plain else word for word in words))
    return None if found is None else _reading(program, found)


def _ps(words: Words) -> Reading | None:
    is_plain = all(is_known(word) and word and " " not in word for word in words)
    line = " ".join(words)
    return Reading() if is_plain and any(form.fullmatch(line) for form in _PS) else None


_SPECIAL: dict[str, Callable[[Words], Reading | None]] = {
    "cd": _cd,
    "command": _command,
    "printf": _printf,
    "test": _test,
    "[": _test,
    "set": _set,
    "export": _export,
    "find": _find,
    "sed": _sed,
    "awk": _awk,
    "gawk": _awk,
    "mawk": _awk,
    "jq": _jq,
    "xxd": _xxd,
    "ps": _ps,
    "git": git,
}
