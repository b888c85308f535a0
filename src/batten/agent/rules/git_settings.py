"""What settings of git run: `alias.x`, `core.sshCommand`, `core.hooksPath` and so on."""

import re

from batten.agent.rules.inner import ANYTHING, GIT_HARMLESS, Commands, text_runs
from batten.agent.rules.shell import HOLE

_FILES = re.compile(
    r"core\.hookspath|init\.templatedir|include\.path|includeif\..*\.path", re.IGNORECASE
)
"""Settings that name files whose commands git runs, or more settings."""


def setting_runs(key: str, value: str) -> Commands:
    """What git runs because of a setting. Its value counts as a line of the shell whatever it is
    about: new versions of git, and programs beside it, have more that are."""
    if GIT_HARMLESS.match(f"{key}={value}") or not value:
        return ()
    if _FILES.fullmatch(key):
        return () if value == "/dev/null" else (ANYTHING,)
    if key.lower().startswith("alias.") and value[:1] != "!":
        return text_runs(f"git {value} {HOLE}", 0).commands
    return text_runs(value.removeprefix("!"), 0).commands


def named_setting(key: str) -> Commands:
    """What may run because a setting has a value that stands elsewhere."""
    return (ANYTHING,) if HOLE in key or _FILES.fullmatch(key) else ()


def written_setting(words: tuple[str, ...]) -> Commands:
    """What runs because of `git config key value`."""
    operands = [word for word in words[2:] if not word.startswith("-")]
    if operands[:1] in (["set"], ["add"]):
        operands = operands[1:]
    at = next((at for at, word in enumerate(operands) if "." in word), len(operands))
    return setting_runs(operands[at], operands[at + 1]) if at + 1 < len(operands) else ()
