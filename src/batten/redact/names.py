"""Which names say that what they name is a secret: of variables, keys and headers."""

import re
from functools import cache

_PARTS = (
    "API_?KEY",
    "ACCESS_?KEY",
    "PRIVATE_?KEY",
    "SECRET",
    "TOKEN",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "AUTHORIZATION",
    "COOKIE",
)
_WHOLE_PARTS = ("PASS", "PWD", "AUTH")
"""Short words that count only between separators, as in DB_PASS."""

_NOT_VALUES = ("TOKENS", "TOKENIZER", "TOKENIZERS")
"""Counts and software, not secrets: MAX_TOKENS, TOKENIZERS_PARALLELISM."""


@cache
def _pattern() -> re.Pattern[str]:
    whole = "|".join(_WHOLE_PARTS)
    nots = "|".join(_NOT_VALUES)
    return re.compile(
        rf"(?!.*(?:^|_)(?:{nots})(?:_|$))"
        rf".*(?:{'|'.join(_PARTS)}|(?:^|_)(?:{whole})(?:_|$))"
    )


@cache
def is_secret_name(name: str) -> bool:
    """Whether a variable, key or header of this name holds a secret."""
    # camelCase and kebab-case are brought to the spelling of the environment.
    spelled = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[-. ]", "_", name[:200]).upper()
    return _pattern().match(spelled) is not None
