"""Recognises the names of secrets: variables, keys and headers."""

import re
from functools import cache

_PARTS = (
    *("API_KEY", "APIKEY", "ACCESS_KEY", "ACCESSKEY", "PRIVATE_KEY", "PRIVATEKEY"),
    "SECRET",
    "TOKEN",
    "PASSW",
    "PASSPHRASE",
    "PASSCODE",
    "CREDENTIAL",
    "AUTHORIZATION",
    "COOKIE",
    *("CONNECTION_STRING", "CONNECTIONSTRING", "DATABASE_URL"),
)
_WHOLE_PARTS = (
    *("PASS", "PWD", "PW", "AUTH", "PAT", "DSN", "CREDS", "CRED", "OTP"),
    *("TOTP", "APIKEYS", "KEYPASS", "STOREPASS", "HTPASSWD", "PATS", "SAS"),
    *("PASSWORT", "KENNWORT", "CONTRASENA", "RECOVERY_CODE", "RECOVERY_CODES", "BACKUP_CODES"),
    *("AUTH_CODE", "ACCESS_CODE"),
)
"""Short words that count only between separators, as in DB_PASS."""

_LAST_WORDS = ("JWT", "JWTS", "JWE", "BEARER", "MNEMONIC", "SEED_PHRASE")
"""Words that count only at the end: JWT_ISSUER is no secret."""

_QUALIFIED_WORDS = ("SEED", "SALT", "PEPPER", "ENTROPY", "KEYS")
"""Words that count only at the end of a name that says what they are for: SIGNING_SEED."""

_QUALIFIERS = (
    *("SIGN", "SIGNING", "ENCRYPT", "ENCRYPTION", "CRYPTO", "WALLET", "MASTER", "PRIVATE", "HASH"),
    *("HASHING", "HASHIDS", "PASSWORD", "PW", "KEY", "KDF", "AUTH", "ACCESS", "ADMIN", "APP"),
    *("SECURITY", "SECURE", "API", "COOKIE", "SESSION", "USER", "LOGIN", "JWT", "TOTP", "OTP"),
    *("LOGGED_IN", "NONCE", "DEVISE", "ROOT", "VAULT", "WEBHOOK", "PIN", "CSRF"),
    *("SSH", "DEPLOY", "SECRET"),
)

_LAST_PART = "_KEY"
"""Counts only at the end, after a qualifier: OPENAI_KEY. KEY_FILE is a path, and a bare `key` can
be anything."""

_NOT_KEYS = ("PUBLIC", "PRIMARY", "FOREIGN", "SORT", "PARTITION", "CACHE", "PUB", "HOST", "HOT")
"""Qualifiers of keys that are not secret: PUBLIC_KEY, CACHE_KEY."""

_NOT_VALUES = ("TOKENIZER", "TOKENIZERS", "AUTH_SOCK")
"""Software and paths: TOKENIZERS_PARALLELISM, SSH_AUTH_SOCK."""

_OWNED = (
    *("API", "ACCESS", "AUTH", "REFRESH", "SECRET", "BEARER", "SERVICE", "BOT", "USER", "SESSION"),
    *(
        "DEPLOY",
        "ADMIN",
        "CLIENT",
        "SERVER",
        "CI",
        "ID",
        "MY",
        "APP",
        "WEBHOOK",
        "PERSONAL",
        "OAUTH",
    ),
    *("GITHUB", "GITLAB", "SLACK", "NPM", "HF", "DISCORD", "TELEGRAM", "VAULT", "PUSH", "DEVICE"),
    *("LOGIN", "PRIVATE", "SIGNING", "RUNNER", "MASTER", "ROOT", "PROD", "PRODUCTION", "SSO"),
)
"""What has tokens that are secrets: API_TOKENS. Those of MAX_TOKENS are counted."""

_SEPARATORS = str.maketrans("-. ", "___")

_VARIABLES = {"KEY": True, "PWD": False}
"""Names with another meaning as a variable than as the key of a value."""


def _between(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"_{word}_" for word in words)


_HARMLESS_WORDS, _SECRET_WORDS = _between(_NOT_VALUES), _between(_WHOLE_PARTS)
_LAST, _QUALIFIED = _between(_LAST_WORDS), _between(_QUALIFIED_WORDS)
_NO_SECRET_KEYS = tuple(word + _LAST_PART for word in _NOT_KEYS)


@cache
def is_secret_name(name: str) -> bool:
    """Whether a variable, key or header of this name holds a secret."""
    if name in _VARIABLES:
        return _VARIABLES[name]
    spelled = _spelled(name[:200])
    between = f"_{spelled}_"
    # Not one pattern: compiling it takes longer than all names of a start.
    if any(word in between for word in _HARMLESS_WORDS):
        return False
    if "_TOKENS_" in between:
        return any(f"_{word}_" in between for word in _OWNED) and "_MAX_" not in between
    if any(part in spelled for part in _PARTS):
        return True
    if any(word in between for word in _SECRET_WORDS):
        return True
    if between.endswith(_LAST):
        return True
    if between.endswith(_QUALIFIED):
        return any(f"_{word}_" in between for word in _QUALIFIERS)
    if not spelled.endswith(_LAST_PART):
        return False
    return not spelled.endswith(_NO_SECRET_KEYS)


def _spelled(name: str) -> str:
    """A name in camelCase or kebab-case as an environment variable would be spelled."""
    letters = name.replace("_", "")
    if name != name.lower() and not (letters.isalpha() and letters.isupper()):
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return name.translate(_SEPARATORS).upper()
