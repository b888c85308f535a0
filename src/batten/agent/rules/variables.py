"""Variables that may be set for a command: those that change nothing of what it runs or reads."""

import re

from batten.agent.rules.shell import HOLE, NAMES, name_set

_HARMLESS = name_set(
    "CI DEBUG NODE_ENV COLUMNS LINES NO_COLOR FORCE_COLOR CLICOLOR "
    "CLICOLOR_FORCE RUST_LOG RUST_BACKTRACE PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE "
    "PYTHONHASHSEED PYTHONIOENCODING PYTHONUTF8 PYTHONFAULTHANDLER GOOS GOARCH CGO_ENABLED "
    "APP_ENV RAILS_ENV RACK_ENV ENVIRONMENT VERBOSE LOG_LEVEL DEBIAN_FRONTEND"
)
_LOCALE = re.compile(r"(?:C|POSIX|[a-z]{2,3}(?:_[A-Z]{2})?)?(?:\.(?:UTF-?8|utf-?8))?(?:@[a-z]+)?")
"""In other encodings a character of a script may swallow the one behind it."""
_NAMED: dict[str, re.Pattern[str]] = {
    **dict.fromkeys(("PAGER", "GIT_PAGER", "MANPAGER"), re.compile("(?:cat)?")),
    "LANG": _LOCALE,
    "LANGUAGE": re.compile(r"[A-Za-z_:]*"),
    # A file is read where a value names one.
    "TZ": re.compile(r"(?!.*\.\.)[A-Za-z][A-Za-z0-9_+,./:-]*|"),
    "TERM": re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]*|"),
}


def is_harmless_variable(name: str, value: str, is_alone: bool = False) -> bool:
    """Whether a variable changes nothing of what commands run. `is_alone`: of the shell only."""
    if name in _HARMLESS:
        return True
    values = _LOCALE if name.startswith("LC_") else _NAMED.get(name)
    if values is not None:
        return HOLE not in value and NAMES not in value and bool(values.fullmatch(value))
    is_own = re.fullmatch(r"(?!npm_)[a-z][a-z0-9_]*", name) is not None
    return is_alone and is_own and "proxy" not in name
