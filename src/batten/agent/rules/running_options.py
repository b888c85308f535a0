"""Programs with options whose value is run: a command, or a file of commands or of code."""

import re
from itertools import pairwise

from batten.agent.rules.git_settings import setting_runs
from batten.agent.rules.inner import (
    ANYTHING,
    NOTHING,
    SHELLS,
    Commands,
    Options,
    Runs,
    anything,
    by_options,
    text_runs,
)
from batten.agent.rules.shell import HOLE, NAMES, name_set

_SSH_RUNS = (
    r"(?i)(?:proxy|local|knownhosts|remote)command|pkcs11provider|securitykeyprovider|xauthlocation"
    r"|include|match"
)
"""Settings of ssh that make it run or load something."""
_SSH_LINE = r"(?i)(?:-\w*o)?\s*(?:\w+command|match\s.*\bexec)\s+(.*)"
_SSH = name_set("ssh scp sftp autossh sshfs")
_COMPILERS = name_set("gcc g++ cc c++ clang clang++ gfortran")

_WITH_LINES: dict[str, Options] = {
    "tar": Options(values="IF", words=("--to-command", "--use-compress-program", "--rsh-command",
                                        "--checkpoint-action", "--info-script", "--rmt-command",
                                        "--new-volume-script")),
    "rsync": Options(values="e", words=("--rsh", "--rsync-path")),
    "sort": Options(words=("--compress-program",)),
    "split": Options(words=("--filter",)),
    "man": Options(values="PH", words=("--pager", "--html")),
    "scp": Options(values="SDF"),
    "sftp": Options(values="SDF"),
    "zip": Options(words=("--unzip-command",)),
    "cpio": Options(words=("--rsh-command",)),
    "wget": Options(words=("--use-askpass",)),
    "tcpdump": Options(values="z"),
    "install": Options(words=("--strip-program",)),
    "diff3": Options(words=("--diff-program",)),
    "sdiff": Options(words=("--diff-program",)),
    "rg": Options(words=("--pre", "--hostname-bin")),
    **dict.fromkeys(("ag", "ack", "bat", "batcat", "delta"), Options(words=("--pager",))),
    "svn": Options(words=("--editor-cmd", "--diff-cmd", "--diff3-cmd", "--merge-cmd",
                          "--config-option")),
    "hg": Options(words=("--config",)),
    "cvs": Options(values="e"),
    "go": Options(words=("-exec", "-toolexec", "-vettool", "--exec", "--toolexec", "--vettool")),
    **dict.fromkeys(("npm", "pnpm", "yarn"), Options(
        words=("--script-shell", "--shell", "--node-options", "--editor", "--viewer"))),
    "cargo": Options(),
    "gpg": Options(words=("--photo-viewer",)),
    "dpkg": Options(words=("--pre-invoke", "--post-invoke", "--status-logger")),
    "mysql": Options(words=("--pager",)),
    "fzf": Options(words=("--preview",)),
    **dict.fromkeys(("apt", "apt-get", "aptitude"), Options()),
    **dict.fromkeys(_COMPILERS, Options(words=("-wrapper",))),
    **dict.fromkeys(
        ("nc", "ncat", "netcat"),
        Options(values="ec", words=("--exec", "--sh-exec", "--lua-exec")),
    ),
}  # fmt: skip
"""Programs with options whose value is run. Short options are those with a value."""

_NAMES_FILE: dict[str, str] = {
    "openssl": r"engine|--?(?:engine|provider|provider-path)(?:=.*)?",
    "ssh-keygen": r"-D.*",
    "ssh-add": r"-s.*",
    **dict.fromkeys(_COMPILERS, r"-(?:fplugin|specs)=.*"),
    **dict.fromkeys(_SSH, r"-[46AaCfGgKkMNnqsTtVvXxYy]*F.*"),
    "gdb": r"--?(?:x|command|ix|init-command)(?:=.*)?",
    "run-parts": r"[^-].*",
    "crontab": r"-|[^-].*",
}
"""Words of programs that name a file of commands, of code, or of settings that run some."""
_UNUSED = frozenset(("/dev/null", "none"))


def by_program(name: str, words: tuple[str, ...]) -> Runs:
    """What a program runs because of its options."""
    found = NOTHING
    if name in _WITH_LINES:
        settings = setting_runs if name in ("hg", "svn") else None
        options = _WITH_LINES[name]
        found = _or_setting(name, words) or by_options(words, options, 1, settings)
    at = _file_at(name, words)
    if at:
        return Runs((*found.commands, ANYTHING), is_known=False, at=min(at, found.at or at))
    if name in _SSH:
        lines = (line[1] for word in words if (line := re.fullmatch(_SSH_LINE, word)))
        commands = (each for line in lines for each in text_runs(line, 0).commands)
        return Runs((*found.commands, *commands), found.is_known, at=found.at)
    return found


def _file_at(name: str, words: tuple[str, ...]) -> int:
    """Where a word stands that names a file of commands or of code; 0 if none does."""
    pattern = _NAMES_FILE.get(name)
    if pattern is None:
        return 0
    for at, word in enumerate(words[1:], 1):
        following = words[at + 1 : at + 2]
        if re.fullmatch(pattern, word) and not {word[2:], *following} & _UNUSED:
            return at
    return 0


def _or_setting(name: str, words: tuple[str, ...]) -> Runs | None:
    """What a setting on the command line runs, and options in a spelling of their own."""
    for at, word in enumerate(words[1:], 1):
        following = words[at + 1] if at + 1 < len(words) else ""
        is_found = (
            (name in ("scp", "sftp") and word.startswith("-o")
             and re.match(_SSH_RUNS, (word[2:] or following).strip()))
            or (name == "wget" and re.match(r"-[a-zA-Z]*e|--(?:ex|conf)", word)
                and re.search(r"askpass|^--conf", word + following))
            or (name == "cargo" and word.startswith("--config")
                and re.search(r"wrapper|runner|linker|rustc|rustdoc|alias", word + following))
            or (name in ("apt", "apt-get", "aptitude") and re.match(r"-\w*o|--option", word))
            or (name == "zip" and re.match(r"-[a-zA-Z]*TT", word))
            or (name == "tar" and at == 1 and re.fullmatch(r"[A-Za-z]*[IF][A-Za-z]*", word))
        )  # fmt: skip
        if is_found:
            return Runs(anything(words, is_known=False).commands, is_known=False, at=at)
    return None


_RUNS_VALUE = (
    r"(?s)--?[\w-]{0,40}(?:exec|command|cmd|shell|pager|editor|hook|prog|rsh|wrapper|invoke|browser"
    r"|askpass|viewer)[\w-]{0,40}(?:=(.*))?"
)
"""Options of which the names say that their value is run, whatever the program is."""


def guessed(words: tuple[str, ...]) -> Commands:
    """What a program that is not known may run because of its options."""
    values: list[str] = []
    for word, following in pairwise((*words[1:], "")):
        if option := re.fullmatch(_RUNS_VALUE, word):
            values.append(option[1] if option[1] is not None else following)
        elif word in ("-c", "-e", "-x") and " " in following:
            values.append(following)
    found = (each for value in values if value for each in text_runs(value, 0).commands)
    # A shell or a word that is not known says nothing here.
    return tuple(each for each in found if each.words[:1] and not _says_nothing(each.words))


def _says_nothing(words: tuple[str, ...]) -> bool:
    return words[0][:1] in (HOLE, NAMES) or (len(words) == 1 and words[0] in SHELLS)
