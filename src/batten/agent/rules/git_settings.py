"""What settings of git run: `alias.x`, `core.sshCommand`, `core.hooksPath` and so on."""

import re

from batten.agent.rules.inner import ANYTHING, GIT_HARMLESS, Commands, text_runs
from batten.agent.rules.shell import HOLE, is_known

_FILES = r"(?i)core\.hookspath|init\.templatedir|include\.path|includeif\..*\.path"
"""Settings that name files whose commands git runs, or more settings."""
_NO_PROGRAM = (
    r"(?i)(?:safe|https?|url|branch|transfer|user|author|committer|commit|tag|push|pull|fetch|index"
    r"|pack|rerere|status|i18n|lfs|protocol|remote\.[^.]*\.(?:url|fetch|push))(?:\.|$)"
)
"""Settings that are no programs: a value of theirs that is not known says nothing."""


def setting_runs(key: str, value: str) -> Commands:
    """What git runs because of a setting. Its value counts as a line of the shell whatever it is
    about: new versions of git, and programs beside it, have more that are."""
    if GIT_HARMLESS.match(f"{key}={value}") or not value:
        return ()
    if re.fullmatch(_FILES, key):
        return () if value == "/dev/null" else (ANYTHING,)
    addresses = (text.partition("ext::")[2] for text in (key, value) if "ext::" in text)
    found = [each for address in addresses for each in address_runs(address)]
    if key.lower().startswith("alias.") and value[:1] != "!":
        found += text_runs(f"git {value} {HOLE}", 0).commands
    else:
        found += text_runs(value.removeprefix("!"), 0).commands
    if value == "*" or re.match(_NO_PROGRAM, key):
        found = [each for each in found if each.words and is_known(each.words[0])]
    return tuple(found)


def address_runs(address: str) -> Commands:
    """`ext::command`, a way to a repository: blanks within its words are `% `."""
    return text_runs(address.replace("% ", " "), 0).commands


def named_setting(key: str) -> Commands:
    """What may run because a setting has a value that stands elsewhere."""
    return (ANYTHING,) if HOLE in key or re.fullmatch(_FILES, key) else ()


def written_setting(words: tuple[str, ...]) -> Commands:
    """What runs because of `git config key value`."""
    operands = [word for word in words[2:] if not word.startswith("-")]
    if operands[:1] in (["set"], ["add"]):
        operands = operands[1:]
    at = next((at for at, word in enumerate(operands) if "." in word), len(operands))
    return setting_runs(operands[at], operands[at + 1]) if at + 1 < len(operands) else ()
