"""Recognises the names of secrets: variables, keys and headers."""

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
"""Words that count only at the end, after a qualifier: OPENAI_KEY. KEY_FILE is a path, and a bare
`key` can be anything."""

_NOT_KEYS = ("PUBLIC", "PRIMARY", "FOREIGN", "SORT", "PARTITION", "CACHE", "PUB", "HOST", "HOT")
"""Qualifiers of keys that are not secret: PUBLIC_KEY, CACHE_KEY."""

_NOT_VALUES = ("TOKENS", "TOKENIZER", "TOKENIZERS", "AUTH_SOCK")
"""Counts, software and paths: MAX_TOKENS, TOKENIZERS_PARALLELISM, SSH_AUTH_SOCK."""

_VARIABLES = {"KEY": True, "PWD": False}
"""Names with another meaning as a variable than as the key of a value."""


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
    # Normalise camelCase and kebab-case to the spelling of environment variables.
    spelled = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[-. ]", "_", name[:200]).upper()
    return _pattern().match(spelled) is not None
