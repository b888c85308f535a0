"""Makes texts safe for people: removes secrets and terminal control characters."""

import re
from collections.abc import Callable, Mapping

from batten.contract.cutting import CONTROLS

Redact = Callable[[str], str]
"""Returns a text without its secrets."""


def plain(text: str) -> str:
    """The text with U+FFFD in place of each control character."""
    return re.sub(CONTROLS, "\ufffd", text)


def one_line(text: str) -> str:
    """The same on one line, so that the text cannot imitate a line of ours."""
    return plain(text.replace("\n", "⏎"))


def crowded(text: str) -> str:
    """The text on one line, with long runs of blanks counted: they could hide what follows."""
    return re.sub(r"[\s⏎]{16,}", lambda run: f" ⟨{len(run[0])} blanks⟩ ", one_line(text))


def without_tokens(text: str) -> str:
    """The text without tokens of known formats."""
    return redacting({})(text)


def redacting(environ: Mapping[str, str]) -> Redact:
    """Removes the secrets of an environment, which providers and servers may echo.

    The first text loads the redactor.
    """

    def redact(text: str) -> str:
        from batten.redact.redactor import Redactor

        return Redactor.from_environment(environ).text(text)

    return redact
