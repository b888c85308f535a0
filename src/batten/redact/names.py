"""Which names say that what they name is a secret: of variables, keys and headers."""

import re
from functools import cache

_PARTS = (
    "API_?KEY",
    "ACCESS_?KEY",
    "PRIVATE_?KEY",
    "SECRET",
    "TOKEN",
    "PASSW",
    "PASSPHRASE",
    "CREDENTIAL",
    "AUTHORIZATION",
    "COOKIE",
    "CONNECTION_?STRING",
    "DATABASE_URL",
)
_WHOLE_PARTS = ("PASS", "PWD", "PW", "AUTH", "PAT", "DSN")
"""Short words that count only between separators, as in DB_PASS."""

_LAST_PARTS = ("KEY",)
"""What counts only at the end, after what it opens: OPENAI_KEY. KEY_FILE names a place, and
a bare `key` anything."""

_NOT_KEYS = ("PUBLIC", "PRIMARY", "FOREIGN", "SORT", "PARTITION", "CACHE", "PUB", "HOST", "HOT")
"""What a key opens if it is no secret: PUBLIC_KEY, CACHE_KEY."""

_NOT_VALUES = ("TOKENS", "TOKENIZER", "TOKENIZERS", "AUTH_SOCK")
"""Counts, software and places: MAX_TOKENS, TOKENIZERS_PARALLELISM, SSH_AUTH_SOCK."""

_VARIABLES = {"KEY": True, "PWD": False}
"""Names that mean something else as a variable than as a key of some value."""


@cache
def _pattern() -> re.Pattern[str]:
    whole = "|".join(_WHOLE_PARTS)
    last = "|".join(_LAST_PARTS)
    nots = "|".join(_NOT_VALUES)
    not_keys = "".join(f"(?<!{word})" for word in _NOT_KEYS)
    return re.compile(
        rf"(?!.*(?:^|_)(?:{nots})(?:_|$))"
        rf".*(?:{'|'.join(_PARTS)}|(?:^|_)(?:{whole})(?:_|$)"
        rf"|{not_keys}_(?:{last})$)"
    )


@cache
def is_secret_name(name: str) -> bool:
    """Whether a variable, key or header of this name holds a secret."""
    if name in _VARIABLES:
        return _VARIABLES[name]
    # camelCase and kebab-case are brought to the spelling of the environment.
    spelled = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[-. ]", "_", name[:200]).upper()
    return _pattern().match(spelled) is not None
