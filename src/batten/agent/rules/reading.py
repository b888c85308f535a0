"""Commands that only read: a table of programs, each with what makes it write or run something."""

import re
from collections.abc import Callable

from msgspec import Struct

from batten.agent.rules.shell import HOLE, NAMES, is_known, name_set

Words = tuple[str, ...]


class Reader(Struct, frozen=True):
    """A program that reads and prints."""

    short: str = ""
    """Short options that make it write or run something."""
    long: tuple[str, ...] = ()
    """Long ones. Programs take them abbreviated too."""
    values: str = ""
    """Short options with a value that is no path."""
    skipped: int = 0
    """Operands at the beginning that are no paths: a pattern, a filter."""
    most: int = 99999
    """Operands it may have; behind them would be a file to write."""
    has_paths: bool = True
    """Whether operands are paths."""
    takes_holes: bool = False
    """Whether no word can make it do anything but print."""
    is_recursive: bool = False
    """Whether it reads below a folder, also files that are not named."""


_PLAIN = Reader()
_PRINTS = Reader(has_paths=False, takes_holes=True)
_GREP = Reader(values="ABCme", skipped=1)
_SEARCH = Reader(
    long=("--pre", "--hostname-bin", "--search-zip"), short="z", values="ABCmegtTj", skipped=1,
    is_recursive=True,
)  # fmt: skip
_SUM = Reader(values="l")
_JQ = Reader(short="fL", long=("--from-file",), skipped=1)

_READERS: dict[str, Reader] = {
    **dict.fromkeys(name_set("cat nl tac rev cmp stat realpath readlink"), _PLAIN),
    **dict.fromkeys(name_set("strings od hexdump column expand unexpand paste"), _PLAIN),
    **dict.fromkeys(name_set("md5sum sha1sum sha224sum sha256sum sha384sum sha512sum cksum"), _SUM),
    **dict.fromkeys(name_set("echo true false : pwd basename dirname whoami id"), _PRINTS),
    **dict.fromkeys(name_set("groups uname uptime nproc seq sleep which type"), _PRINTS),
    **dict.fromkeys(name_set("exit break continue"), _PRINTS),
    "head": Reader(values="nc"),
    "tail": Reader(values="ncs"),
    "wc": Reader(long=("--files0-from",)),
    "ls": Reader(values="IwT"),
    "cut": Reader(values="bcdf"),
    "tr": Reader(has_paths=False),
    "fold": Reader(values="w"),
    "comm": _PLAIN,
    "diff": Reader(values="UCIWx"),
    "file": Reader(
        short="Cmzf", long=("--compile", "--magic-file", "--uncompress", "--files-from")
    ),
    "du": Reader(values="dBt", long=("--files0-from",)),
    "df": Reader(values="Btx"),
    "hostname": Reader(short="bF", long=("--file", "--boot"), most=0),
    "xxd": Reader(short="r", values="lsgc", most=1),
    "base64": Reader(values="w"),
    "tree": Reader(short="oR", long=("--output",), values="LPI"),
    "sort": Reader(
        short="oT",
        long=("--output", "--compress-program", "--temporary-directory", "--files0-from"),
        values="ktS",
    ),
    "uniq": Reader(values="fsw", most=1),
    "grep": _GREP,
    "egrep": _GREP,
    "fgrep": _GREP,
    "rg": _SEARCH,
    "ps": Reader(has_paths=False),
    "pgrep": Reader(has_paths=False),
    "free": Reader(has_paths=False),
    "wait": Reader(short="p", has_paths=False),
}  # fmt: skip
_VERSIONED = name_set(
    "python python3 node npm npx pnpm yarn pip pip3 uv cargo rustc git make gcc g++ clang "
    "cmake java javac ruby perl php bash rg jq docker kubectl terraform tsc deno bun poetry "
    "pytest ruff mypy"
)
_FIND_WRITES = ("-exec", "-ok", "-delete", "-fprint", "-fls", "-files0-from")
_SED = re.compile(
    r"(?:(?:\d+|\$|/(?:[^/\\\n]|\\.)*/)(?:,(?:\d+|\$|/(?:[^/\\\n]|\\.)*/))?)?[pdq=]"
    r"|s([/|#,])(?:(?!\1)[^\\\n;{}]|\\.)*\1(?:(?!\1)[^\n;{}])*\1[gpI0-9]*"
)
_AWK_RUNS = re.compile(r"system|getline|[|>@]|printf?\s*\(?.*>|ARG[VC]|close|fflush|function")
_GIT_LONG = (
    "--output", "--ext-diff", "--textconv", "--filters", "--open-files-in-pager", "--exec-path",
    "--upload-pack", "--receive-pack", "--no-index", "--git-dir", "--work-tree",
    "--output-directory", "--batch-command",
)  # fmt: skip
_GIT_READS = name_set(
    "status log diff show blame annotate ls-files ls-tree rev-parse describe shortlog rev-list "
    "cat-file for-each-ref merge-base name-rev check-ignore check-attr whatchanged "
    "count-objects grep diff-tree diff-index diff-files show-ref show-branch cherry range-diff "
    "version"
)
_GIT_LISTS: dict[str, frozenset[str]] = {
    "branch": name_set(
        "-a -r -v -vv -l --all --remotes --list --show-current --verbose --merged --no-merged"
    ),
    "tag": frozenset(["-l", "--list", "-n"]),
    "remote": frozenset(["-v", "--verbose"]),
}
_GIT_SECOND: dict[str, frozenset[str]] = {
    "stash": frozenset(("list", "show")),
    "worktree": frozenset(("list",)),
    "reflog": frozenset(("show",)),
    "submodule": frozenset(("status",)),
    "remote": frozenset(("get-url",)),
    "config": name_set("--get --get-all --get-regexp --list -l get list"),
    "notes": frozenset(("list", "show")),
    "bisect": frozenset(("log",)),
}
_HARMLESS_VARIABLES = name_set(
    "CI DEBUG NODE_ENV LANG LANGUAGE TZ TERM COLUMNS LINES NO_COLOR FORCE_COLOR CLICOLOR "
    "CLICOLOR_FORCE RUST_LOG RUST_BACKTRACE PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE "
    "PYTHONHASHSEED PYTHONIOENCODING PYTHONUTF8 PYTHONFAULTHANDLER GOOS GOARCH CGO_ENABLED "
    "APP_ENV RAILS_ENV RACK_ENV ENVIRONMENT VERBOSE LOG_LEVEL DEBIAN_FRONTEND"
)
_PAGERS = frozenset(("PAGER", "GIT_PAGER", "MANPAGER"))


def is_harmless_variable(name: str, value: str, is_alone: bool = False) -> bool:
    """Whether a variable changes nothing of what commands run. `is_alone`: of the shell only."""
    if name in _HARMLESS_VARIABLES or name.startswith("LC_"):
        return True
    if name in _PAGERS:
        return value in ("", "cat")
    is_own = re.fullmatch(r"(?!npm_)[a-z][a-z0-9_]*", name) is not None
    return is_alone and is_own and "proxy" not in name


class Reading(Struct, frozen=True):
    """What a command that only reads may read."""

    paths: Words = ()
    """As they are written."""
    is_recursive: bool = False
    is_git: bool = False
    """It reads a repository, whose configuration may name programs to run."""


def reading(words: Words) -> Reading | None:
    """What a command reads; None if it may do anything else."""
    if not words or not is_known(words[0]):
        return None
    name, rest = words[0], words[1:]
    if len(rest) == 1 and rest[0] in ("--version", "-V", "version") and name in _VERSIONED:
        return Reading()
    special = _SPECIAL.get(name)
    if special is not None:
        return special(rest)
    reader = _READERS.get(name)
    return None if reader is None else _judged(reader, rest)


def _judged(reader: Reader, words: Words) -> Reading | None:
    if reader.takes_holes:
        return Reading()
    paths: list[str] = []
    operands, at, is_recursive, no_options = 0, 0, reader.is_recursive, False
    skipped = reader.skipped
    while at < len(words):
        word = words[at]
        at += 1
        if HOLE in word:
            return None
        if word == "--" and not no_options:
            no_options = True
        elif word.startswith("-") and word != "-" and not no_options:
            if not is_known(word) or _is_option_of(reader, word):
                return None
            if re.match(r"-[a-zA-Z]*[ef]|--(?:reg|fi)", word):
                skipped = 0
            is_recursive = is_recursive or bool(re.match(r"-[a-zA-Z]*[rR]|--(de)?r", word))
            if not word.startswith("--") and word[-1] in reader.values:
                at += 1
            paths += _value_paths(word)
        else:
            if word.startswith(NAMES) and (reader.short or reader.long) and not no_options:
                # A file may be named like an option.
                return None
            operands += 1
            if reader.has_paths and operands > skipped:
                paths.append(word)
    if operands > reader.most:
        return None
    return Reading(tuple(paths), is_recursive)


def _is_option_of(reader: Reader, word: str) -> bool:
    """Whether an option is one that writes or runs something."""
    if word.startswith("--"):
        name = word.partition("=")[0]
        return any(option.startswith(name) for option in reader.long)
    return any(letter in reader.short for letter in word[1:])


def _value_paths(word: str) -> list[str]:
    """What may be a path within an option, such as `--file=a`, `-fa` or `-qf/a`."""
    name, mark, value = word.partition("=")
    if mark:
        return [value] if value else []
    attached = "" if name.startswith("--") else name[2:]
    found = re.search(r"[/~]|\.\.", name)
    return [path for path in (attached, name[found.start() :] if found else "") if path]


def _cd(words: Words) -> Reading | None:
    if len(words) != 1 or words[0].startswith("-") or not is_known(words[0]):
        return None
    return Reading((words[0],))


def _date(words: Words) -> Reading | None:
    """What it prints, and no time to set; a format begins with a plus."""
    reader = Reader(short="sf", long=("--set", "--file"), values="dr", most=0)
    return _judged(reader, tuple(word for word in words if not word.startswith("+")))


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
    if any(HOLE in word or word.startswith((NAMES, *_FIND_WRITES)) for word in words):
        return None
    end = next((at for at, word in enumerate(words) if word[:1] in ("-", "(", "!")), len(words))
    newer = tuple(words[at + 1] for at, word in enumerate(words[:-1]) if word.startswith("-newer"))
    return Reading((*words[:end], *newer))


def _sed(words: Words) -> Reading | None:
    """Addresses with `p`, `d`, `q`, and plain substitutions."""
    rest = [word for word in words if word not in ("-n", "-E", "-r", "--quiet", "-e")]
    scripts = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "-e"] or rest[:1]
    if not scripts or any(word.startswith(("-", HOLE, NAMES)) or HOLE in word for word in rest):
        return None
    parts = [part.strip() for script in scripts for part in script.split(";")]
    if not all(is_known(part) and _SED.fullmatch(part) for part in parts):
        return None
    return Reading(tuple(word for word in rest if word not in scripts))


def _awk(words: Words) -> Reading | None:
    """One program without files, pipes and functions, behind `-F` and `-v`."""
    if any(HOLE in word for word in words):
        return None
    at = 0
    while at < len(words) and words[at].startswith("-"):
        if words[at][:2] not in ("-F", "-v"):
            return None
        at += 1 if words[at][2:] else 2
    rest = words[at:]
    if not rest or not is_known(rest[0]) or _AWK_RUNS.search(rest[0]):
        return None
    if any(word.startswith((NAMES, "-")) for word in rest):
        return None
    return Reading(rest[1:])


def _jq(words: Words) -> Reading | None:
    """A program that loads a module reads a file that it names in its own language."""
    if any(re.search(r"import|include", word) for word in words):
        return None
    return _judged(_JQ, words)


def _git(words: Words) -> Reading | None:
    if not words or any(HOLE in word for word in words):
        return None
    name, rest = words[0], words[1:]
    if any(word.startswith(("-O", NAMES)) for word in rest):
        return None
    guarded = Reader(long=_GIT_LONG)
    if any(word.startswith("-") and _is_option_of(guarded, word) for word in rest if word != "--"):
        return None
    if name in _GIT_READS or (
        name in _GIT_LISTS
        and all(
            word in _GIT_LISTS[name] or word.startswith(("--sort=", "--format=", "--contains="))
            for word in rest
        )
    ):
        lists = True
    else:
        lists = bool(rest) and rest[0] in _GIT_SECOND.get(name, frozenset())
        if name == "config" and lists:
            lists = not any(word in ("--edit", "-e", "--add", "--unset") for word in rest)
        if name == "reflog" and not rest:
            lists = True
    if not lists:
        return None
    paths = tuple(word for word in rest if not word.startswith("-"))
    values = tuple(path for word in rest if word.startswith("-") for path in _value_paths(word))
    # `a..b` is a range of commits, `HEAD:a` and `-L1,9:a` name a file of one.
    shown = tuple(path for path in paths if ".." not in path or ".." in path.split("/"))
    stored = tuple(
        word.rpartition(":")[2] for word in rest if ":" in word and not word.startswith("--")
    )
    found = (*shown, *values, *filter(None, stored))
    if name != "grep":
        return Reading(found, is_git=True)
    # Without a path behind its pattern it searches all files.
    has_pattern = any(re.match(r"-[a-zA-Z]*[ef]|--and", word) for word in rest)
    is_wide = len(paths) <= (0 if has_pattern else 1)
    return Reading((*found, *((".",) if is_wide else ())), is_recursive=True, is_git=True)


_SPECIAL: dict[str, Callable[[Words], Reading | None]] = {
    "cd": _cd,
    "command": _command,
    "date": _date,
    "printf": _printf,
    "test": _test,
    "[": _test,
    "set": _set,
    "export": _export,
    "find": _find,
    "sed": _sed,
    "awk": _awk,
    "gawk": _awk,
    "jq": _jq,
    "mawk": _awk,
    "git": _git,
}
