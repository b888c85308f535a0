"""Removes secrets from texts for people."""

from collections.abc import Callable, Mapping

Redact = Callable[[str], str]
"""Returns a text without its secrets."""


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
