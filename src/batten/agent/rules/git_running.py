"""What commands of git run: `-c`, `rebase --exec`, `bisect run` and so on."""

from batten.agent.rules.git_settings import address_runs, setting_runs, written_setting
from batten.agent.rules.inner import (
    ANYTHING,
    GIT_HARMLESS,
    NOTHING,
    Options,
    Runs,
    anything,
    by_options,
    command_of,
    given,
)
from batten.agent.rules.shell import HOLE, SimpleCommand

_GIT_FLAGS = frozenset(
    ("--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects")
)

_GIT_FETCHES = Options(words=("--upload-pack",))
_GIT_RUNS: dict[str, Options] = {
    "rebase": Options(values="x", words=("--exec",)),
    "difftool": Options(values="x", words=("--extcmd",)),
    "grep": Options(values="O", words=("--open-files-in-pager",)),
    "clone": Options(values="uc", words=("--upload-pack", "--config", "--template")),
    "init": Options(words=("--template",)),
    "fetch": _GIT_FETCHES,
    "pull": _GIT_FETCHES,
    "fetch-pack": Options(words=("--upload-pack", "--exec")),
    "ls-remote": Options(words=("--upload-pack", "--exec")),
    "push": Options(words=("--receive-pack", "--exec")),
    "send-pack": Options(words=("--receive-pack", "--exec")),
    "archive": Options(words=("--exec",)),
    "daemon": Options(words=("--access-hook",)),
    "instaweb": Options(values="db", words=("--httpd", "--browser")),
    "filter-branch": Options(
        words=(
            *("--setup", "--env-filter", "--tree-filter", "--index-filter", "--parent-filter"),
            *("--msg-filter", "--commit-filter", "--tag-name-filter"),
        )
    ),
    "svn": Options(words=("--authors-prog",)),
    "send-email": Options(
        words=("--to-cmd", "--cc-cmd", "--header-cmd", "--sendmail-cmd", "--smtp-server")
    ),
}
"""Commands of git with options whose value is run. Short options are those with a value."""


def git_program(words: tuple[str, ...]) -> Runs:
    """`git-push`, as git's own programs are called where they are on the path."""
    folder, _, name = words[0].rpartition("/")
    second = name.removeprefix("git-") if folder else HOLE + name.removeprefix("git-")
    return Runs((command_of(("git", second, *words[1:])),))


def git(words: tuple[str, ...]) -> Runs:
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
            certain = certain and word == "-c" and bool(GIT_HARMLESS.match(value))
            key, _, setting = value.partition("=")
            before += setting_runs(key, setting) if word == "-c" else ()
            before += (ANYTHING,) if HOLE in key else ()
            at += 1
        elif word in ("--version", "--help", "-v", "-h"):
            return NOTHING
        else:
            certain = certain and word in _GIT_FLAGS
            if word.startswith("--exec-path="):
                before.append(ANYTHING)
            elif word.startswith(HOLE):
                # It may be the command itself.
                before.append(SimpleCommand(("git", *words[at - 1 :])))
    if at == 1:
        return _git_command(words)
    inner = command_of(("git", *words[at:]))
    return Runs((*before, inner), is_known=certain, is_wrapper=certain, at=at)


def _git_command(words: tuple[str, ...]) -> Runs:
    """What a command of git runs by its arguments: `git rebase --exec`, `git bisect run`."""
    name, second = (*words[1:3], "", "")[:2]
    address = next((at for at, word in enumerate(words) if word.startswith("ext::")), 0)
    if address:
        return Runs(address_runs(words[address][5:]), is_known=False, at=address)
    if (name, second) == ("bisect", "run"):
        return given(words, 3)
    if name in ("submodule", "submodule--helper") and "foreach" in words[2:]:
        at = words.index("foreach", 2) + 1
        while at < len(words) and words[at].startswith("-"):
            at += 1
        return given(words, at)
    if name == "merge-index":
        at = next((at for at in range(2, len(words)) if words[at] not in ("-o", "-q")), len(words))
        return given(words, at)
    if name == "remote-ext":
        return anything(words, is_known=False)
    if name == "for-each-repo":
        commands = tuple(command_of(("git", *words[at:])) for at in range(2, len(words)))
        return Runs(commands, is_known=False, at=2)
    if name == "config":
        return Runs(found) if (found := written_setting(words)) else NOTHING
    options = _GIT_RUNS.get(name)
    return NOTHING if options is None else by_options(words, options, 2, setting_runs)
