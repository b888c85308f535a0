"""Commands of git that only read a repository, each with the options that leave it at that.

A command that is not here, or an option that is not, may write, run a program or use the network.
What the repository's own configuration runs is not judged here.
"""

import re

from batten.agent.rules.program_words import Given, Program, Words, given
from batten.agent.rules.reading_found import Reading
from batten.agent.rules.shell import HOLE, is_known, name_set

_DIFF = (
    "-pusRzabwWDr -U= -B? -M? -C? -l= -S= -G= -X? --patch --no-patch --unified= --raw "
    "--patch-with-raw --patch-with-stat --indent-heuristic --no-indent-heuristic --minimal "
    "--patience --histogram --anchored= --diff-algorithm= --stat? --stat-width= --stat-count= "
    "--stat-name-width= --stat-graph-width= --compact-summary --numstat --shortstat --dirstat? "
    "--cumulative --summary --name-only --name-status --color? --no-color --color-moved? "
    "--no-color-moved --color-moved-ws= --word-diff? --word-diff-regex= --color-words? "
    "--no-renames --rename-empty --no-rename-empty --check --ws-error-highlight= --full-index "
    "--binary --abbrev? --no-abbrev --break-rewrites? --find-renames? --find-copies? "
    "--find-copies-harder --irreversible-delete --diff-filter= --pickaxe-all --pickaxe-regex "
    "--relative? --no-relative --text --ignore-cr-at-eol --ignore-space-at-eol "
    "--ignore-space-change --ignore-all-space --ignore-blank-lines --ignore-matching-lines= -I= "
    "--inter-hunk-context= --function-context --exit-code --quiet --no-ext-diff --no-textconv "
    "--ignore-submodules? --src-prefix= --dst-prefix= --no-prefix --default-prefix "
    "--line-prefix= --output-indicator-new= --output-indicator-old= --output-indicator-context="
)
_LOG = (
    "-gmctiEFP -n= -L= -# --oneline --graph --no-graph --decorate? --no-decorate --decorate-refs= "
    "--decorate-refs-exclude= --clear-decorations --all --branches? --tags? --remotes? --glob= "
    "--exclude= --not --reflog --walk-reflogs --max-count= --skip= --since= --after= --until= "
    "--before= --since-as-filter= --author= --committer= --grep= --grep-reflog= --invert-grep "
    "--all-match --regexp-ignore-case --basic-regexp --extended-regexp --fixed-strings "
    "--perl-regexp --remove-empty --merges --no-merges --min-parents= --max-parents= "
    "--no-min-parents --no-max-parents --first-parent --cherry --cherry-pick --cherry-mark "
    "--left-right --left-only --right-only --boundary --simplify-merges "
    "--simplify-by-decoration --full-history --dense --sparse --ancestry-path? --show-pulls "
    "--topo-order --date-order --author-date-order --reverse --follow --full-diff --log-size "
    "--source --mailmap --use-mailmap --no-mailmap --no-use-mailmap --format= --pretty? "
    "--abbrev-commit --no-abbrev-commit --encoding= --expand-tabs? --no-expand-tabs --notes? "
    "--no-notes --date= --relative-date --parents --children --no-walk? --cc --diff-merges= "
    "--no-diff-merges --combined-all-paths --root --no-show-signature"
)
_SHOWN = f"{_LOG} {_DIFF}"
_REFS = (
    "--sort= --format= --points-at= --merged? --no-merged? --contains? --no-contains? "
    "--ignore-case --omit-empty --color? --no-color"
)
_BLAME = (
    "-bpctlfnsew -M? -C? -L= -S=PATH --root --show-stats --incremental --porcelain "
    "--line-porcelain --show-name --show-number --show-email --abbrev= --score-debug --date= "
    "--since= --first-parent --ignore-rev= --ignore-revs-file=PATH --contents=PATH --color-lines "
    "--color-by-age --progress --no-progress --encoding= --reverse --minimal"
)
_GREP = (
    "-niwvhHlLczopWqIaEGPFr0123456789 -e= -f=PATH -A= -B= -C= -m= --and --or --not --all-match "
    "--cached --untracked --exclude-standard --no-exclude-standard --line-number --column "
    "--ignore-case --word-regexp --invert-match --full-name --name-only --files-with-matches "
    "--files-without-match --count --color? --no-color --break --heading --show-function "
    "--function-context --context= --after-context= --before-context= --max-depth= --max-count= "
    "--threads= --text --no-textconv --extended-regexp --perl-regexp --fixed-strings "
    "--basic-regexp --null --only-matching --quiet --recursive --no-recursive"
)
COMMANDS: dict[str, str] = {
    "status": "-sbvz -u? -M? --short --branch --show-stash --porcelain? --long --verbose "
    "--untracked-files? --ignored? --column? --no-column --ahead-behind --no-ahead-behind "
    "--renames --no-renames --find-renames? --ignore-submodules?",
    **dict.fromkeys(name_set("log show whatchanged"), _SHOWN),
    "diff": f"{_DIFF} -0123 --cached --staged --merge-base --base --ours --theirs --cc -c",
    **dict.fromkeys(
        name_set("diff-tree diff-index diff-files"),
        f"{_SHOWN} -q0123 -v --cached --no-commit-id --merge-base --always --base --ours --theirs",
    ),
    "range-diff": f"{_DIFF} --creation-factor= --no-dual-color --left-only --right-only --notes? "
    "--no-notes",
    "blame": _BLAME,
    "annotate": _BLAME,
    "grep": _GREP,
    "ls-files": "-ztvfcdoimsuk -x= -X=PATH --cached --deleted --others --ignored --stage "
    "--directory --no-empty-directory --unmerged --killed --modified --resolve-undo --eol "
    "--deduplicate --exclude= --exclude-from=PATH --exclude-standard --error-unmatch "
    "--with-tree= --full-name --abbrev? --debug --sparse --format=",
    "ls-tree": "-drtlz --long --name-only --name-status --object-only --full-name --full-tree "
    "--abbrev? --format=",
    "rev-parse": "-q --show-toplevel --git-dir --absolute-git-dir --git-common-dir --abbrev-ref? "
    "--short? --verify --quiet --symbolic --symbolic-full-name --is-inside-work-tree "
    "--is-inside-git-dir --is-bare-repository --is-shallow-repository --show-prefix --show-cdup "
    "--show-superproject-working-tree --all --branches? --tags? --remotes? --not --revs-only "
    "--no-revs --flags --no-flags --show-object-format? --local-env-vars",
    "describe": "--all --tags --contains --long --always --abbrev= --exact-match --dirty? "
    "--broken? --candidates= --match= --exclude= --first-parent --debug",
    "shortlog": f"{_LOG} -nsec -w? --numbered --summary --email --committer --group=",
    "rev-list": f"{_LOG} --count --objects --objects-edge --disk-usage? --header --timestamp "
    "--no-commit-header --commit-header --quiet",
    "cat-file": "-tsep --batch-check? --buffer --unordered",
    "for-each-ref": f"-sp --count= --exclude= --shell --perl --python --tcl {_REFS}",
    "merge-base": "-a --all --octopus --independent --is-ancestor --fork-point",
    "name-rev": "--tags --refs= --exclude= --name-only --all --no-undefined --always",
    "check-ignore": "-qvnz --quiet --verbose --non-matching",
    "check-attr": "-az --all --cached",
    "count-objects": "-vH --verbose --human-readable",
    "show-ref": "-dsq --head --heads --tags --branches --dereference --hash? --verify --quiet "
    "--abbrev? --exists",
    "show-branch": "-arl --all --remotes --list --current --topo-order --date-order --sparse "
    "--more= --merge-base --independent --no-name --sha1-name --topics --color? --no-color",
    "cherry": "-v --verbose --abbrev?",
    "version": "--build-options",
    "branch": f"-arvli --all --remotes --list --show-current --verbose --column? --no-column "
    f"--abbrev? --no-abbrev {_REFS}",
    "tag": f"-li -n? --list --column? --no-column {_REFS}",
    "remote": "-v --verbose",
    "reflog": _SHOWN,
}
"""Commands with their options, as in `Program.options`."""
_PARTS: dict[str, dict[str, str]] = {
    "stash": {"list": _SHOWN, "show": f"{_DIFF} --include-untracked --only-untracked"},
    "worktree": {"list": "-vz --porcelain --verbose"},
    "reflog": {"show": _SHOWN},
    "submodule": {"status": "--cached --recursive"},
    "remote": {"get-url": "--push --all"},
    "notes": {"list": "", "show": ""},
    "bisect": {"log": ""},
}
"""Commands within commands, each with its options."""
_CONFIG = (
    "-lz --local --global --system --worktree --show-origin --show-scope --null --name-only "
    "--includes --no-includes --type= --bool --int --path --default= --all --regexp --value= "
    "--fixed-value --get --get-all --get-regexp --list"
)
_WITHOUT_OPERANDS = frozenset(("remote", "reflog"))
_LISTS: dict[str, str] = {
    "branch": "--list --contains --no-contains --merged --no-merged --points-at",
    "tag": "-l --list --contains --no-contains --merged --no-merged --points-at",
}
"""Commands that make what an operand names, unless one of these options is given."""
_SHOWS_FILES = name_set("log show whatchanged diff diff-tree diff-index diff-files stash grep")
_VERIFIES = re.compile(r"%G|signature")
"""In a format: it runs a program that checks signatures."""
_MAGIC = re.compile(r":[(!/^]")
"""How a pattern for paths begins that means more than it says."""
_WILD = re.compile(r"[*?\[\\]")


def git(words: Words) -> Reading | None:
    """What a command of git reads, without the options before its name; None if it may do more."""
    if not words or any(HOLE in word for word in words):
        return None
    name, rest = words[0], words[1:]
    if name == "config":
        return _config(rest)
    part = _PARTS.get(name, {}).get(rest[0]) if rest else None
    options = COMMANDS.get(name) if part is None else part
    if options is None:
        return None
    read = given(Program(options, may_write=True), rest if part is None else rest[1:])
    if read is None or any(_VERIFIES.search(option.value) for option in read.options):
        return None
    lists = name not in _LISTS or read.has(_LISTS[name])
    if read.operands and part is None and (name in _WITHOUT_OPERANDS or not lists):
        return None
    return _reading(name, read)


def _config(words: Words) -> Reading | None:
    """Settings as they are. A name alone asks for its value, and one more would set it."""
    has_mode = words[:1] in (("get",), ("list",))
    read = given(Program(_CONFIG, may_write=True), words[1:] if has_mode else words)
    if read is None:
        return None
    if has_mode or read.has("--get --get-all --get-regexp --list -l"):
        return Reading(is_git=True)
    is_asked = len(read.operands) == 1 and "." in read.operands[0]
    return Reading(is_git=True) if is_asked and is_known(read.operands[0]) else None


def _reading(name: str, read: Given) -> Reading:
    skipped = 1 if name == "grep" and not read.has("-e -f --and") else 0
    operands = read.operands[skipped:]
    # An option without a value may have been taken for one that has it.
    apart = [option.value for option in read.options if option.is_apart]
    lined = [option.value.rpartition(":")[2] for option in read.options if option.name == "-L"]
    paths = [*operands, *apart, *read.files]
    # `HEAD:a` and `-L1,9:a` name a file of a commit, `a..b` may be two of them.
    pieces = [part for word in paths for piece in word.split(":")[1:] for part in _ends(piece)]
    found = tuple(filter(None, (*paths, *pieces, *lined)))
    tops = [_above(word) for word in operands if _is_wide(word)] if name in _SHOWS_FILES else []
    if name == "grep" and (not operands or len(operands) > read.behind):
        # What may be a commit leaves out no file.
        tops.append(".")
    return Reading(found, tuple(tops), is_recursive=bool(tops), is_git=True)


def _ends(piece: str) -> tuple[str, ...]:
    return (piece, *re.split(r"\.\.\.?", piece)) if ".." in piece else (piece,)


def _is_wide(word: str) -> bool:
    """Whether git may take an operand for more paths than the one it spells."""
    return bool(_MAGIC.match(word) or _WILD.search(word))


def _above(word: str) -> str:
    """The folder above all that such an operand stands for."""
    if _MAGIC.match(word):
        return "."
    return _WILD.split(word.rpartition(":")[2])[0].rpartition("/")[0] or "."
