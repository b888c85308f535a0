"""Commands that run other commands: `env`, `xargs`, `find -exec`, `sudo`, `bash -c` and so on."""

import re
from collections.abc import Callable

from msgspec.structs import replace

from batten.agent.rules.builtins import builtin, evaluated
from batten.agent.rules.embedded import embedded
from batten.agent.rules.git_running import git, git_program
from batten.agent.rules.inner import (
    ANYTHING,
    NOTHING,
    SHELLS,
    UNKNOWN,
    Runs,
    anything,
    command_of,
    text_runs,
)
from batten.agent.rules.reading import reading
from batten.agent.rules.running_options import by_program, guessed
from batten.agent.rules.shell import (
    FOUND,
    HOLE,
    NAMES,
    PIPE,
    SimpleCommand,
    is_known,
    name_set,
)
from batten.agent.rules.wrappers import WRAPPERS, ssh, wrapped

_PRIVILEGED = name_set(
    "sudo doas sshpass su runuser pkexec chroot unshare nsenter strace ltrace watch flock script "
    "parallel systemd-run setpriv gdb entr unbuffer expect setarch linux32 linux64 "
    "firejail bwrap fakeroot proot run0 chrt taskset numactl cgexec dbus-run-session xvfb-run "
    "toybox rlwrap catchsegv valgrind perf catatonit dumb-init tini s6-setuidgid gosu su-exec "
    "start-stop-daemon torify torsocks proxychains proxychains4 eatmydata faketime runcon sg "
    "newgrp crontab screen tmux prlimit choom uclampset coresched chronic ifne mispipe lckdo "
    "logsave hyperfine systemd-inhibit systemd-nspawn machinectl capsh run-parts aa-exec "
    "setlock chpst envdir envuidgid setuidgid softlimit daemonize daemon nodemon watchexec "
    "sem ssh-agent lxc lxc-attach nerdctl buildah singularity apptainer flatpak flatpak-spawn "
    "toolbox distrobox docker-compose mosh rsh xterm gnome-terminal konsole alacritty kitty "
    "foot urxvt dtach abduco cpulimit timelimit trickle tsocks rr heaptrack memusage mpirun "
    "mpiexec srun sbatch pdsh pssh parallel-ssh ansible salt fswatch bpftrace stap ts tsp "
    "pueue kexec dbus-launch autossh sshfs vagrant i386 x86_64 uname26 wine wine64 gpg-agent "
    "debconf"
)
"""Programs that run what they are given, with other rights or beside us. They may be named in a
rule; what they run is looked for to deny it, and not to allow it."""
_PROJECT = name_set(
    "npx bunx pnpx uvx pipx uv poetry pdm hatch pipenv rye tox nox npm pnpm yarn bun bundle "
    "docker podman kubectl devbox nix direnv mise asdf conda mamba make just cargo go dotnet "
    "mvn gradle cross-env dotenv env-cmd concurrently onchange foreman honcho lerna nx volta "
    "fnm nvm rbenv pyenv rustup opam stack cabal dune mix micromamba pixi nix-shell guix "
    "bazel task coverage"
)
"""Programs of projects that run what they are given, among other things."""
_FROM_INPUT = name_set("at batch")
"""Programs that run what they read."""
_FIND_RUNS = ("-exec", "-execdir", "-ok", "-okdir")
_FD_RUNS = r"(?:-[a-zA-Z]*?[xX]|--exec(?:-batch)?(?:=|$))(.*)"
_MOST_ARGUMENTS = 8
_COPIES = name_set("cp ln link mv install")
_PROCESS = r"/(?:proc|dev/fd)/.*"
"""A program by a file of the system that stands for another, which may be any: `/proc/self/exe`."""
_LOADER = r"ld[-.](?:.*\.)?so(?:\.\d+)*|ld-linux.*|qemu-(?!system|img).*"


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
    found = _by_name(name, words)
    other = by_program(name, words)
    if other != NOTHING:
        at = min(found.at, other.at) if found.at and other.at else found.at or other.at
        is_all = found.is_known and other.is_known
        found = Runs((*found.commands, *other.commands), is_all, at=at, unread=found.unread)
    if found != NOTHING and words[0] not in (name, f"/bin/{name}", f"/usr/bin/{name}"):
        # A file of this name, which may do anything.
        found = Runs(found.commands, is_known=False, at=1, unread=found.unread)
    # To deny them: what a language can do is allowed with the program.
    hidden = embedded(command) or (guessed(words) if found == NOTHING else ())
    return replace(found, commands=(*found.commands, *hidden)) if hidden else found


def _by_name(name: str, words: tuple[str, ...]) -> Runs:
    special = _SPECIAL.get(name)
    if special is not None:
        return special(words)
    if name in WRAPPERS:
        return wrapped(name, words)
    if name.startswith("git-"):
        return git_program(words)
    if name in _FROM_INPUT:
        return NOTHING if words[1:2] == ("-l",) else UNKNOWN
    if name in (*SHELLS, "source", ".") and any(map(_is_stream, words[1:])):
        return UNKNOWN
    if name in SHELLS:
        return _shell(words)
    if re.fullmatch(_PROCESS, words[0]) and words[0] != PIPE:
        return Runs((*anything(words, is_known=False).commands, ANYTHING), is_known=False, at=1)
    if (found := builtin(name, words)) is not None:
        return found
    if name in _PRIVILEGED or re.fullmatch(_LOADER, name) or (name == "ip" and "exec" in words):
        return anything(words, is_known=False)
    if name in _PROJECT or (name == "cmake" and "-E" in words):
        return anything(words, is_known=True)
    if name in _COPIES:
        # A program under another name.
        copied = tuple(word for word in words[1:] if re.match(r"(?:.*/)?s?bin/[^/]+$", word))
        return Runs(tuple(SimpleCommand((word, HOLE)) for word in copied))
    return NOTHING


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
    found = anything(words, is_known=False)
    # A file that the shell reads before it does anything else.
    starts = any(re.match(r"--?(?:rcfile|init-file)", word) for word in _before_script(words))
    return Runs((*found.commands, *((ANYTHING,) if starts else ())), is_known=False, at=found.at)


def _before_script(words: tuple[str, ...]) -> tuple[str, ...]:
    """The options of a shell, up to its script or its line."""
    at = 1
    while at < len(words) and words[at][:1] in ("-", "+"):
        at += 2 if re.fullmatch(r"[-+]\w*[oO]|--(?:rcfile|init-file)", words[at]) else 1
    return words[1:at]


def _is_stream(word: str) -> bool:
    """Whether a file is what a shell reads from a pipe or from a redirection."""
    return word.startswith(("/dev/stdin", "/dev/fd/", "/proc/")) and word != PIPE


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


def _fd(words: tuple[str, ...]) -> Runs:
    """`fd` runs what stands behind `-x`, for each file that it finds."""
    for at, word in enumerate(words[1:], 1):
        if option := re.fullmatch(_FD_RUNS, word):
            inner = (*filter(None, (option[1],)), *words[at + 1 :])
            marked = tuple(re.sub(r"\{[^{} ]*\}", HOLE, each) for each in inner)
            command = command_of(marked if HOLE in "".join(marked) else (*marked, HOLE))
            return Runs((command,), at=at)
    return NOTHING


def _parallel(words: tuple[str, ...]) -> Runs:
    """`parallel` runs its words for each argument, or the arguments if there are none."""
    found = anything(words, is_known=False)
    end = next((at for at, word in enumerate(words) if word.startswith(":::")), len(words))
    marked = [re.sub(r"\{[^{} ]*\}", HOLE, word) for word in words[1:end]]
    valued = {at + 1 for at, word in enumerate(marked) if re.fullmatch("-[aEILNPSjlns]", word)}
    operands = [word for at, word in enumerate(marked) if word[:1] != "-" and at not in valued]
    # Behind `:::` are the arguments; elsewhere they are in a file, or in what it reads.
    arguments = words[end + 1 :] if words[end : end + 1] == (":::",) else (HOLE,)
    has_places = HOLE in "".join(marked)
    commands = tuple(
        command_of((*marked[at:], *(() if has_places else (argument,))))
        for at, word in enumerate(marked)
        if word[:1] != HOLE
        for argument in arguments[:_MOST_ARGUMENTS]
    )
    is_given = operands and operands[0][:1] != HOLE
    hidden = () if is_given or arguments != (HOLE,) else (ANYTHING,)
    return Runs((*found.commands, *commands, *hidden), is_known=False, at=found.at)


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
    "eval": evaluated,
    "fd": _fd,
    "fdfind": _fd,
    "find": _find,
    "git": git,
    "parallel": _parallel,
    "ssh": ssh,
}
