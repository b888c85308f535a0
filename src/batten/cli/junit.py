"""The file of a JUnit report."""

from typing import TextIO

from batten.cli.parsing import UsageError


def open_report(path: str) -> TextIO:
    """Open the file for writing, before the work that it reports."""
    try:
        return open(path, "w", encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path} cannot be written: {reason}") from error
