"""Recognises the names of secrets: variables, keys and headers."""

import re
from functools import cache

_PARTS = (
    *("API_KEY", "APIKEY", "ACCESS_KEY", "ACCESSKEY", "PRIVATE_KEY", "PRIVATEKEY"),
    "SECRET",
    "TOKEN",
    "PASSW",
    "PASSPHRASE",
    "CREDENTIAL",
    "AUTHORIZATION",
    "COOKIE",
    *("CONNECTION_STRING", "CONNECTIONSTRING", "DATABASE_URL"),
)
_WHOLE_PARTS = ("PASS", "PWD", "PW", "AUTH", "PAT", "DSN")
"""Short words that count only between separators, as in DB_PASS."""

_LAST_PART = "_KEY"
"""Counts only at the end, after a qualifier: OPENAI_KEY. KEY_FILE is a path, and a bare `key` can
be anything."""

_NOT_KEYS = ("PUBLIC", "PRIMARY", "FOREIGN", "SORT", "PARTITION", "CACHE", "PUB", "HOST", "HOT")
"""Qualifiers of keys that are not secret: PUBLIC_KEY, CACHE_KEY."""

_NOT_VALUES = ("TOKENS", "TOKENIZER", "TOKENIZERS", "AUTH_SOCK")
"""Counts, software and paths: MAX_TOKENS, TOKENIZERS_PARALLELISM, SSH_AUTH_SOCK."""

_SEPARATORS = str.maketrans("-. ", "___")

_VARIABLES = {"KEY": True, "PWD": False}
"""Names with another meaning as a variable than as the key of a value."""


@cache
def is_secret_name(name: str) -> bool:
    """Whether a variable, key or header of this name holds a secret."""
    if name in _VARIABLES:
        return _VARIABLES[name]
    spelled = _spelled(name[:200])
    between = f"_{spelled}_"
    # Not one pattern: compiling it takes longer than all names of a start.
    if any(f"_{word}_" in between for word in _NOT_VALUES):
        return False
    if any(part in spelled for part in _PARTS):
        return True
    if any(f"_{word}_" in between for word in _WHOLE_PARTS):
        return True
    if not spelled.endswith(_LAST_PART):
        return False
    return not spelled.endswith(tuple(word + _LAST_PART for word in _NOT_KEYS))


def _spelled(name: str) -> str:
    """A name in camelCase or kebab-case as an environment variable would be spelled."""
    letters = name.replace("_", "")
    if name != name.lower() and not (letters.isalpha() and letters.isupper()):
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return name.translate(_SEPARATORS).upper()
