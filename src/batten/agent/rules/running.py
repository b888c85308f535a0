"""Commands that run other commands: `env`, `xargs`, `find -exec`, `sudo`, `bash -c` and so on."""

import re
from collections.abc import Callable

from msgspec import Struct

from batten.agent.rules.reading import reading
from batten.agent.rules.shell import (
    HOLE,
    NAMES,
    PIPE,
    Line,
    SimpleCommand,
    is_known,
    name_set,
    read_line,
)

_SHELLS = name_set(
    "bash sh dash zsh ksh ash rbash fish busybox csh tcsh mksh lksh yash posh pwsh xonsh elvish nu"
)
_SHELL_STATE = name_set(
    "alias unalias source . enable hash bind complete compgen compopt fc shopt declare "
    "typeset local readonly export unset mapfile readarray let read getopts select trap "
    "coproc dirs pushd popd caller"
)
"""Builtins that run a file or a text, or change what later words mean."""
_PRIVILEGED = name_set(
    "sudo doas su runuser pkexec chroot unshare nsenter strace ltrace watch flock script "
    "parallel systemd-run setpriv ssh gdb entr unbuffer expect exec setarch linux32 linux64 "
    "firejail bwrap fakeroot proot run0 chrt taskset numactl cgexec dbus-run-session xvfb-run "
    "toybox rlwrap catchsegv valgrind perf catatonit dumb-init tini s6-setuidgid gosu su-exec "
    "start-stop-daemon torify torsocks proxychains proxychains4 eatmydata faketime runcon sg "
    "newgrp crontab screen tmux prlimit choom uclampset coresched chronic ifne mispipe lckdo "
    "logsave hyperfine systemd-inhibit systemd-nspawn machinectl capsh run-parts aa-exec setlock "
    "chpst envdir envuidgid setuidgid softlimit daemonize daemon nodemon watchexec sem"
)
"""Programs that run what they are given, with other rights or beside us. They may be named in a
rule; what they run is looked for to deny it, and not to allow it."""
_PROJECT = name_set(
    "npx bunx pnpx uvx pipx uv poetry pdm hatch pipenv rye tox nox npm pnpm yarn bun bundle "
    "docker podman kubectl devbox nix direnv mise asdf conda mamba make just cargo go dotnet "
    "mvn gradle"
)
"""Programs of projects that run what they are given, among other things."""
_EVALUATES = _SHELL_STATE | name_set("printf test [ wait")
"""Builtins that evaluate the subscript in the name of a variable."""
_FROM_INPUT = name_set("at batch")
"""Programs that run what they read."""
_SSH_RUNS = re.compile(
    r"(?:proxy|local|knownhosts|remote)command|pkcs11provider|securitykeyprovider|xauthlocation"
    r"|include|match",
    re.IGNORECASE,
)
"""Settings of ssh that make it run or load something."""
_MOST_WORDS = 40
"""Words among which the command of such a program is looked for."""


class Runs(Struct, frozen=True):
    """What a command runs beside itself."""

    commands: tuple[SimpleCommand, ...] = ()
    is_known: bool = True
    """`commands` is all of it."""
    is_wrapper: bool = False
    """It does nothing of its own: it is allowed if what it runs is."""
    at: int = 0
    """The index of the first word of what is run. A wildcard must not stand for that word."""
    below: tuple[SimpleCommand, ...] = ()
    """The commands of `find`, with paths below a folder where they have holes."""


NOTHING = Runs()
_UNKNOWN = Runs(is_known=False, at=1)


class _Options(Struct, frozen=True):
    """How a wrapper is read up to the command that it runs."""

    flags: str = ""
    """Short options without a value."""
    values: str = ""
    """Short options with one."""
    words: tuple[str, ...] = ()
    """Long options; one with a value ends in `=`."""
    operands: int = 0
    """Words before the command."""


_WRAPPERS: dict[str, _Options] = {
    "timeout": _Options("v", "ks", ("--foreground", "--preserve-status", "--verbose",
                                    "--kill-after=", "--signal="), 1),
    "nice": _Options("", "n", ("--adjustment=",)),
    "nohup": _Options(),
    "stdbuf": _Options("", "ioe", ("--input=", "--output=", "--error=")),
    "ionice": _Options("t", "cn", ("--class=", "--classdata=", "--ignore")),
    "time": _Options("pv", "", ("--portability", "--verbose")),
    "command": _Options("p"),
    "builtin": _Options(),
    "setsid": _Options("wfc", "", ("--wait", "--fork", "--ctty")),
    "env": _Options("i0", "u", ("--ignore-environment", "--unset=", "--null")),
    "xargs": _Options("0rtxo", "nPLsdE", ("--null", "--no-run-if-empty", "--verbose", "--exit",
                                          "--max-args=", "--max-procs=", "--max-lines=",
                                          "--delimiter=", "--max-chars=")),
}  # fmt: skip

_WITH_LINES: dict[str, _Options] = {
    "tar": _Options(values="IF", words=("--to-command", "--use-compress-program", "--rsh-command",
                                        "--checkpoint-action", "--info-script", "--rmt-command",
                                        "--new-volume-script")),
    "rsync": _Options(values="e", words=("--rsh", "--rsync-path")),
    "sort": _Options(words=("--compress-program",)),
    "split": _Options(words=("--filter",)),
    "man": _Options(values="PH", words=("--pager", "--html")),
    "scp": _Options(values="SDF"),
    "sftp": _Options(values="SDF"),
    "zip": _Options(words=("--unzip-command",)),
    "cpio": _Options(words=("--rsh-command",)),
    "wget": _Options(words=("--use-askpass",)),
    "tcpdump": _Options(values="z"),
    "install": _Options(words=("--strip-program",)),
    "diff3": _Options(words=("--diff-program",)),
    "sdiff": _Options(words=("--diff-program",)),
    **dict.fromkeys(
        ("nc", "ncat", "netcat"),
        _Options(values="ec", words=("--exec", "--sh-exec", "--lua-exec")),
    ),
}  # fmt: skip
"""Programs with options whose value is run. Short options are those with a value."""


def runs(command: SimpleCommand) -> Runs:
    """What a command runs beside itself, as far as its words tell."""
    words = command.words
    if not words:
        return NOTHING
    if not is_known(words[0]):
        return Runs(is_known=False)
    name = words[0].rpartition("/")[2]
    if reading(words) is not None:
        return NOTHING
    found = _runs(name, words)
    if found is not NOTHING and words[0] not in (name, f"/bin/{name}", f"/usr/bin/{name}"):
        # A file of this name, which may do anything.
        return Runs(found.commands, is_known=False, at=1)
    return found


def _runs(name: str, words: tuple[str, ...]) -> Runs:
    special = _SPECIAL.get(name)
    if special is not None:
        return special(words)
    if name in _WRAPPERS:
        return _wrapped(name, words)
    if name in _WITH_LINES:
        return _or_setting(name, words) or _by_options(words, _WITH_LINES[name], 1)
    if name in _FROM_INPUT:
        return _UNKNOWN
    if name in (*_SHELLS, "source", ".") and any(map(_is_stream, words[1:])):
        return _UNKNOWN
    if name in _SHELLS:
        return _shell(words)
    if name in _EVALUATES and (found := _subscripts(words)):
        return found
    if name in _SHELL_STATE or name in _PRIVILEGED or name.startswith(("ld-linux", "ld.so")):
        return _anything(words, is_known=False)
    if name in _PROJECT or (name == "ip" and "exec" in words):
        return _anything(words, is_known=name != "ip")
    return NOTHING


def _subscripts(words: tuple[str, ...]) -> Runs | None:
    """What is run because a builtin evaluates it: `test -v 'a[$(id)]'`."""
    lines = [_text(word, 1) for word in words[1:] if "$(" in word or "`" in word]
    commands = tuple(command for line in lines for command in line.commands)
    return Runs((*commands, *_anything(words, is_known=False).commands), False) if lines else None


def _or_setting(name: str, words: tuple[str, ...]) -> Runs | None:
    """What a setting on the command line runs, and options in a spelling of their own."""
    for at, word in enumerate(words[1:], 1):
        following = words[at + 1] if at + 1 < len(words) else ""
        is_found = (
            (name in ("scp", "sftp") and word.startswith("-o")
             and _SSH_RUNS.match((word[2:] or following).strip()))
            or (name == "wget" and re.match(r"-[a-zA-Z]*e|--(?:ex|conf)", word)
                and re.search(r"askpass|^--conf", word + following))
            or (name == "zip" and re.match(r"-[a-zA-Z]*TT", word))
            or (name == "tar" and at == 1 and re.fullmatch(r"[A-Za-z]*[IF][A-Za-z]*", word))
        )  # fmt: skip
        if is_found:
            return _anything(words, is_known=False)
    return None


def _anything(words: tuple[str, ...], *, is_known: bool) -> Runs:
    """Whichever of the words is the command, it is among these."""
    most = min(len(words), _MOST_WORDS)
    commands = tuple(_command(_cut(words[start:])) for start in range(1, most))
    first = next((at for at, word in enumerate(words) if at and not word.startswith("-")), 1)
    is_known = is_known and most == len(words)
    return Runs(commands, is_known=is_known, at=0 if is_known else first)


def _cut(words: tuple[str, ...]) -> tuple[str, ...]:
    return words if len(words) <= _MOST_WORDS else (*words[:_MOST_WORDS], HOLE)


def _command(words: tuple[str, ...]) -> SimpleCommand:
    assignments: list[tuple[str, str]] = []
    while words and (found := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", words[0], re.DOTALL)):
        assignments.append((found[1], found[2]))
        words = words[1:]
    return SimpleCommand(words, " ".join(words), tuple(assignments))


def _wrapped(name: str, words: tuple[str, ...]) -> Runs:
    start, replaced = _after_options(words, _WRAPPERS[name], name)
    if start is None:
        return _anything(_split_strings(words) if name == "env" else words, is_known=False)
    inner = words[start:]
    variables: list[tuple[str, str]] = []
    while name == "env" and inner and "=" in inner[0]:
        variables.append((inner[0].partition("=")[0], inner[0].partition("=")[2]))
        inner = inner[1:]
    if name == "xargs":
        inner = tuple(word.replace(replaced, HOLE) for word in inner) if replaced else inner
        inner = (*(inner or ("echo",)), *(() if replaced else (HOLE,)))
    if not inner:
        return NOTHING if name in ("env", "command") else _UNKNOWN
    command = SimpleCommand(inner, " ".join(inner), tuple(variables))
    return Runs((command,), is_wrapper=True, at=start)


def _split_strings(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words of `env -S 'a b'`, however the option is written."""
    bare = (re.sub(r"^(?:-[A-Za-z0-9]*S|--s[a-z-]*=)", "", word) for word in words)
    pieces = (piece for word in bare for piece in re.sub(r"['\"]", "", word).split() or ("",))
    return tuple(re.sub(r"\$\{.*", HOLE, piece) for piece in pieces)


def _after_options(words: tuple[str, ...], options: _Options, name: str) -> tuple[int | None, str]:
    """Where the command of a wrapper begins, None if that is not certain; and what `xargs -I`
    replaces."""
    at, replaced = 1, ""
    while at < len(words) and words[at].startswith("-") and (words[at] != "-" or name == "env"):
        word = words[at]
        if not is_known(word):
            return None, ""
        at += 1
        if word == "--":
            break
        if word == "-" or (name == "nice" and re.fullmatch(r"-[0-9]+", word)):
            continue
        if name == "xargs" and word.startswith("-I"):
            replaced = word[2:] or (words[at] if at < len(words) else "")
            at += 0 if word[2:] else 1
            if not replaced:
                return None, ""
        elif word.startswith("--"):
            if word in options.words:
                continue
            if word.partition("=")[0] + "=" not in options.words:
                return None, ""
            at += 0 if "=" in word else 1
        elif word[1] in options.values:
            at += 0 if word[2:] else 1
        elif not set(word[1:]) <= set(options.flags):
            return None, ""
    if any(not is_known(word) for word in words[1 : at + options.operands]):
        return None, ""
    return at + options.operands, replaced


def _shell(words: tuple[str, ...]) -> Runs:
    """`bash -c 'line'`; of a script and of what is read from elsewhere nothing is known."""
    at, has_line = 1, False
    while at < len(words) and re.fullmatch(r"-[cefhiluvx]+|--(?:norc|noprofile|login)", words[at]):
        has_line = has_line or (words[at][1] != "-" and "c" in words[at])
        at += 1
    if has_line and at < len(words) and not words[at].startswith(("-", "+", HOLE, NAMES)):
        return _text(words[at], at)
    if not has_line and words[at : at + 1] in ((), ("-s",), ("-",)):
        return _UNKNOWN
    return _anything(words, is_known=False)


def _is_stream(word: str) -> bool:
    """Whether a file is what a shell reads from a pipe or from a redirection."""
    return word.startswith(("/dev/stdin", "/dev/fd/", "/proc/")) and word != PIPE


def _text(text: str, at: int) -> Runs:
    """A line that is run as a whole."""
    line = read_line(text) if is_known(text) else "it is not known"
    if not isinstance(line, Line):
        # Part by part, to deny what can be seen of it.
        parts = [part.split() for part in re.split(r"[;&|\n`(){}<>'\"$]+", text)]
        return Runs(tuple(_command(tuple(part)) for part in parts if part), is_known=False, at=at)
    return Runs(line.commands, is_wrapper=True, at=at)


def _eval(words: tuple[str, ...]) -> Runs:
    at = 2 if words[1:2] == ("--",) else 1
    return _text(" ".join(words[at:]), at) if len(words) > at else NOTHING


def _find(words: tuple[str, ...]) -> Runs:
    """What `-exec` runs for each file; `-delete` runs `rm`, in effect."""
    found: list[SimpleCommand] = []
    below: list[SimpleCommand] = []
    certain = all(is_known(word) or word[0] not in "-" + HOLE for word in words if word)
    at = 1
    first = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next((i for i in range(at, len(words)) if words[i] in (";", "+")), len(words))
            inner = words[at:end]
            certain = certain and bool(inner)
            found.append(_command(tuple(each.replace("{}", HOLE) for each in inner)))
            # A path below where it looks; none begins like an option.
            below.append(_command(tuple(each.replace("{}", f"./{NAMES}") for each in inner)))
            first, at = first or at, end + 1
        elif word == "-delete":
            found.append(SimpleCommand(("rm", HOLE), "rm"))
            below.append(found[-1])
            first = first or at - 1
    if not found and certain:
        return NOTHING
    return Runs(tuple(found), is_known=certain, at=first, below=tuple(below))


_GIT_HARMLESS = re.compile(
    r"user\.(name|email)=|core\.(quotepath|autocrlf|abbrev)=|color\.\w+=|advice\.\w+="
    r"|log\.(date|decorate|follow|abbrevcommit)=|init\.defaultbranch=|(commit|tag)\.gpgsign=false$"
    r"|diff\.(algorithm|renames|noprefix|mnemonicprefix|colormoved|context)=|pull\.(rebase|ff)="
    r"|push\.default=|merge\.conflictstyle=|fetch\.prune=|gc\.auto=|core\.pager=(cat)?$",
    re.IGNORECASE,
)
_GIT_FLAGS = frozenset(
    ("--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects")
)


_GIT_ANYTHING = ("-c", "--config", "--template")
"""Options whose values are settings and hooks, not lines that can be read here."""
_GIT_FETCHES = _Options(words=("--upload-pack",))
_GIT_RUNS: dict[str, _Options] = {
    "rebase": _Options(values="x", words=("--exec",)),
    "difftool": _Options(values="x", words=("--extcmd",)),
    "grep": _Options(values="O", words=("--open-files-in-pager",)),
    "clone": _Options(values="uc", words=("--upload-pack", "--config", "--template")),
    "init": _Options(words=("--template",)),
    "fetch": _GIT_FETCHES,
    "pull": _GIT_FETCHES,
    "fetch-pack": _Options(words=("--upload-pack", "--exec")),
    "ls-remote": _Options(words=("--upload-pack", "--exec")),
    "push": _Options(words=("--receive-pack", "--exec")),
    "send-pack": _Options(words=("--receive-pack", "--exec")),
    "archive": _Options(words=("--exec",)),
    "daemon": _Options(words=("--access-hook",)),
    "instaweb": _Options(values="db", words=("--httpd", "--browser")),
    "filter-branch": _Options(
        words=(
            *("--setup", "--env-filter", "--tree-filter", "--index-filter", "--parent-filter"),
            *("--msg-filter", "--commit-filter", "--tag-name-filter"),
        )
    ),
    "svn": _Options(words=("--authors-prog",)),
    "send-email": _Options(
        words=("--to-cmd", "--cc-cmd", "--header-cmd", "--sendmail-cmd", "--smtp-server")
    ),
}
"""Commands of git with options whose value is run. Short options are those with a value."""


def _git(words: tuple[str, ...]) -> Runs:
    """`git` with its general options taken off. `-c` and others can make it run anything."""
    before: list[SimpleCommand] = []
    at, certain = 1, True
    while at < len(words) and words[at].startswith(("-", HOLE)):
        word = words[at]
        value = words[at + 1] if at + 1 < len(words) else ""
        at += 1
        if word == "-C":
            before.append(SimpleCommand(("cd", value), f"cd {value}"))
            at += 1
        elif word in ("-c", "--git-dir", "--work-tree", "--namespace", "--config-env"):
            certain = certain and word == "-c" and bool(_GIT_HARMLESS.match(value))
            at += 1
        elif word in ("--version", "--help", "-v", "-h"):
            return NOTHING
        else:
            certain = certain and word in _GIT_FLAGS
    if at == 1:
        return _git_command(words)
    inner = _command(("git", *words[at:]))
    return Runs((*before, inner), is_known=certain, is_wrapper=certain, at=at)


def _git_command(words: tuple[str, ...]) -> Runs:
    """What a command of git runs by its arguments: `git rebase --exec`, `git bisect run`."""
    name, second = (*words[1:3], "", "")[:2]
    if (name, second) == ("bisect", "run"):
        return _given(words, 3)
    if name in ("submodule", "submodule--helper") and "foreach" in words[2:]:
        at = words.index("foreach", 2) + 1
        while at < len(words) and words[at].startswith("-"):
            at += 1
        return _given(words, at)
    if name == "merge-index":
        at = next((at for at in range(2, len(words)) if words[at] not in ("-o", "-q")), len(words))
        return _given(words, at)
    if name == "remote-ext":
        return _anything(words, is_known=False)
    if name == "for-each-repo":
        return _anything(("git", *words), is_known=False)
    options = _GIT_RUNS.get(name)
    return NOTHING if options is None else _by_options(words, options, 2)


def _given(words: tuple[str, ...], at: int) -> Runs:
    """The words from here on: one is a line of the shell, several are a command."""
    given = words[at:]
    if not given:
        return NOTHING
    line = _text(given[0], at) if len(given) == 1 else Runs((_command(given),))
    return Runs(line.commands, is_known=line.is_known, at=at)


def _by_options(words: tuple[str, ...], options: _Options, at: int) -> Runs:
    """The lines of the shell that options give, from this word on."""
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
        is_setting = word.startswith(("-c", "--config")) and bool(_GIT_HARMLESS.match(found))
        if is_setting:
            continue
        line = _text(found.removeprefix("exec="), index)
        commands += line.commands
        certain = certain and line.is_known and not word.startswith(_GIT_ANYTHING)
        first = first or index
    return Runs(tuple(commands), is_known=certain, at=first) if first else NOTHING


def _line_of(word: str, options: _Options) -> str | None:
    """What an option gives to run: "" if that is the next word, None if it runs nothing.

    A long option may be cut short, and short ones may stand in one word.
    """
    if word.startswith("--"):
        name, _, value = word.partition("=")
        is_one = len(name) > 2 and any(each.startswith(name) for each in options.words)
        return value if is_one else None
    found = re.match(rf"-[A-Za-z]*?[{options.values or ' '}](.*)", word, re.DOTALL)
    return found[1] if found else None


_SPECIAL: dict[str, Callable[[tuple[str, ...]], Runs]] = {
    "eval": _eval,
    "find": _find,
    "git": _git,
}
