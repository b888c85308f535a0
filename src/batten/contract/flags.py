"""Flags without a value, to which a command line may give one all the same: `--flag=no`."""

from collections.abc import Collection, Sequence

from batten.contract.errors import CallerError

_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def parse_boolean(text: str, what: str) -> bool:
    """Raises `CallerError` for a text that is neither; `what` names the flag or the variable."""
    value = text.strip().lower()
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise CallerError(
        f"{what} is {text!r}; it is one of {', '.join((*_TRUE, *_FALSE))}", code="usage"
    )


def plain_booleans(known: Collection[str], argv: Sequence[str]) -> list[str]:
    """Replace `--flag=yes` by `--flag` and drop `--flag=no`; the last of two wins."""
    plain: list[str] = []
    for index, word in enumerate(argv):
        if word == "--":
            return [*plain, *argv[index:]]
        name, equals, value = word.partition("=")
        if equals and name in known:
            plain = [other for other in plain if other != name]
            if parse_boolean(value, name):
                plain.append(name)
        else:
            plain.append(word)
    return plain
