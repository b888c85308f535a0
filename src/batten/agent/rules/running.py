"""Commands that run other commands: `env`, `xargs`, `find -exec`, `sudo`, `bash -c` and so on."""

import re
from collections.abc import Callable

from batten.agent.rules.git_running import git
from batten.agent.rules.inner import (
    NOTHING,
    UNKNOWN,
    Options,
    Runs,
    anything,
    by_options,
    command_of,
    text_runs,
)
from batten.agent.rules.reading import reading
from batten.agent.rules.shell import (
    FOUND,
    HOLE,
    NAMES,
    PIPE,
    SimpleCommand,
    is_known,
    name_set,
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
_FIND_RUNS = ("-exec", "-execdir", "-ok", "-okdir")
_SSH_RUNS = re.compile(
    r"(?:proxy|local|knownhosts|remote)command|pkcs11provider|securitykeyprovider|xauthlocation"
    r"|include|match",
    re.IGNORECASE,
)
"""Settings of ssh that make it run or load something."""


_WRAPPERS: dict[str, Options] = {
    "timeout": Options("v", "ks", ("--foreground", "--preserve-status", "--verbose",
                                    "--kill-after=", "--signal="), 1),
    "nice": Options("", "n", ("--adjustment=",)),
    "nohup": Options(),
    "stdbuf": Options("", "ioe", ("--input=", "--output=", "--error=")),
    "ionice": Options("t", "cn", ("--class=", "--classdata=", "--ignore")),
    "time": Options("pv", "", ("--portability", "--verbose")),
    "command": Options("p"),
    "builtin": Options(),
    "setsid": Options("wfc", "", ("--wait", "--fork", "--ctty")),
    "env": Options("i0", "u", ("--ignore-environment", "--unset=", "--null")),
    "xargs": Options("0rtxo", "nPLsdE", ("--null", "--no-run-if-empty", "--verbose", "--exit",
                                          "--max-args=", "--max-procs=", "--max-lines=",
                                          "--delimiter=", "--max-chars=")),
}  # fmt: skip

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
    **dict.fromkeys(
        ("nc", "ncat", "netcat"),
        Options(values="ec", words=("--exec", "--sh-exec", "--lua-exec")),
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
        return _or_setting(name, words) or by_options(words, _WITH_LINES[name], 1)
    if name in _FROM_INPUT:
        return UNKNOWN
    if name in (*_SHELLS, "source", ".") and any(map(_is_stream, words[1:])):
        return UNKNOWN
    if name in _SHELLS:
        return _shell(words)
    if name in _EVALUATES and (found := _subscripts(words)):
        return found
    if name in _SHELL_STATE or name in _PRIVILEGED or name.startswith(("ld-linux", "ld.so")):
        return anything(words, is_known=False)
    if name in _PROJECT or (name == "ip" and "exec" in words):
        return anything(words, is_known=name != "ip")
    return NOTHING


def _subscripts(words: tuple[str, ...]) -> Runs | None:
    """What is run because a builtin evaluates it: `test -v 'a[$(id)]'`."""
    lines = [text_runs(word, 1) for word in words[1:] if "$(" in word or "`" in word]
    commands = tuple(command for line in lines for command in line.commands)
    return Runs((*commands, *anything(words, is_known=False).commands), False) if lines else None


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
            return anything(words, is_known=False)
    return None


def _wrapped(name: str, words: tuple[str, ...]) -> Runs:
    start, replaced = _after_options(words, _WRAPPERS[name], name)
    if start is None:
        return anything(_split_strings(words) if name == "env" else words, is_known=False)
    inner = words[start:]
    variables: list[tuple[str, str]] = []
    while name == "env" and inner and "=" in inner[0]:
        variables.append((inner[0].partition("=")[0], inner[0].partition("=")[2]))
        inner = inner[1:]
    if name == "xargs":
        inner = tuple(word.replace(replaced, HOLE) for word in inner) if replaced else inner
        inner = (*(inner or ("echo",)), *(() if replaced else (HOLE,)))
    if not inner:
        return NOTHING if name in ("env", "command") else UNKNOWN
    command = SimpleCommand(inner, " ".join(inner), tuple(variables))
    return Runs((command,), is_wrapper=True, at=start)


def _split_strings(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words of `env -S 'a b'`, however the option is written."""
    bare = (re.sub(r"^(?:-[A-Za-z0-9]*S|--s[a-z-]*=)", "", word) for word in words)
    pieces = (piece for word in bare for piece in re.sub(r"['\"]", "", word).split() or ("",))
    return tuple(re.sub(r"\$\{.*", HOLE, piece) for piece in pieces)


def _after_options(words: tuple[str, ...], options: Options, name: str) -> tuple[int | None, str]:
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
        return text_runs(words[at], at)
    if not has_line and words[at : at + 1] in ((), ("-s",), ("-",)):
        return UNKNOWN
    return anything(words, is_known=False)


def _is_stream(word: str) -> bool:
    """Whether a file is what a shell reads from a pipe or from a redirection."""
    return word.startswith(("/dev/stdin", "/dev/fd/", "/proc/")) and word != PIPE


def _eval(words: tuple[str, ...]) -> Runs:
    at = 2 if words[1:2] == ("--",) else 1
    return text_runs(" ".join(words[at:]), at) if len(words) > at else NOTHING


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
        if word in _FIND_RUNS:
            end = next((i for i in range(at, len(words)) if words[i] in (";", "+")), len(words))
            inner = words[at:end]
            certain = certain and bool(inner)
            found.append(command_of(tuple(each.replace("{}", HOLE) for each in inner)))
            # A path below where it looks; none begins like an option.
            below.append(command_of(tuple(each.replace("{}", FOUND) for each in inner)))
            first, at = first or at, end + 1
        elif word == "-delete":
            found.append(SimpleCommand(("rm", HOLE), "rm"))
            below.append(found[-1])
            first = first or at - 1
    if not found and certain:
        return NOTHING
    return Runs(tuple(found), is_known=certain, at=first, below=tuple(below))


def without_commands(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words of `find` apart from those that run something."""
    found: list[str] = []
    at = 0
    while at < len(words):
        if words[at] in _FIND_RUNS:
            at = next((i for i in range(at, len(words)) if words[i] in (";", "+")), len(words))
        elif words[at] != "-delete":
            found.append(words[at])
        at += 1
    return tuple(found)


_SPECIAL: dict[str, Callable[[tuple[str, ...]], Runs]] = {
    "eval": _eval,
    "find": _find,
    "git": git,
}
