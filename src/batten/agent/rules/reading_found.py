"""The result of `reading`, which git's commands share with other programs."""

from msgspec import Struct


class Reading(Struct, frozen=True):
    """What a command that only reads may read."""

    paths: tuple[str, ...] = ()
    """As they are written."""
    tops: tuple[str, ...] = ()
    """The folders that it looks through, where it does."""
    is_recursive: bool = False
    """It reads below those folders, also files that are not named."""
    follows: bool = False
    """It reads what is behind links in those folders."""
    is_git: bool = False
    """It reads a repository, whose configuration may name programs to run."""
