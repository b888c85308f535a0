"""Literal secrets in the configuration of tool servers and hooks: what stands in an environment, a
header, an address or on a command line is known from then on."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from batten.redact.known import KnownValues
from batten.redact.names import is_secret_name
from batten.redact.scan import Scanner
from batten.redact.secrets import URL_PASSWORD, WORD, is_plain, of_variable
from batten.redact.shapes import compiled, is_mixed

_SCHEMES = r"(?i:basic|bearer|token|digest|apikey|negotiate) +"
_HEADER_FLAGS = ("-H", "--header", "--proxy-header")
_USER_FLAGS = ("-u", "--user", "--proxy-user")
_DEEPEST = 3
"""Command lines inside command lines: `bash -c '...'`."""
_LEAST = 8
_LEAST_LETTERS = 16
_PIECE = r"(?:[A-Za-z]+[0-9]{0,4}|[0-9]{1,8}[A-Za-z]{0,3}|[A-Za-z0-9]{1,4})"
_ORDINARY = rf"[/._:,@+=~-]*{_PIECE}(?:[/._:,@+=~-]+{_PIECE})*[/._:,@+=~-]*"
"""Words and numbers: names of hosts, regions, models, versions and dates."""
_HOST = r"(?:[^@\s]+@)?[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::[0-9]+)?"


def configured_values(parts: Iterable[Any]) -> set[str]:
    """Literal secrets in entries of tool servers and hooks: in `env`, `headers`, `url`, `command`
    and `args`."""
    values: set[str] = set()
    for entry in parts:
        if not isinstance(entry, Mapping):
            continue  # the reader of the entries refuses it
        part = cast("Mapping[str, Any]", entry)
        for name, value in _texts(part.get("env")):
            values.update(of_variable(name, value))
            values.update(_unlike_words(value))
        for name, value in _texts(part.get("headers")):
            values.update(_of_header(name, value))
        url = part.get("url")
        if isinstance(url, str):
            values.update(_of_url(url))
        values.update(_of_words(_words_of(part), _DEEPEST))
        line = _line_of(part)
        spans = Scanner(KnownValues()).look(line, final=True).spans
        values.update(line[begin:end] for begin, end in spans)
    return {value for value in values if "$" not in value[:1] and not is_plain(value)}


def _unlike_words(value: str) -> Iterator[str]:
    """The value, if it looks like a secret whatever its name is: not like words, numbers, a
    version, a host or a path."""
    value = value.strip()
    if len(value) < _LEAST or compiled(r"^[/~.@]|[\s{}<>]|:/|\$[A-Za-z({]").search(value):
        return
    if not is_mixed(value):
        changes = compiled("[a-z][A-Z]").findall(value)
        if len(value) >= _LEAST_LETTERS and len(changes) >= 3 and value.isalpha():
            yield value
    elif not compiled(_ORDINARY).fullmatch(value) and not compiled(_HOST).fullmatch(value):
        yield value


def _of_header(name: str, value: str) -> Iterator[str]:
    value = compiled(_SCHEMES).sub("", value.strip(), count=1)
    if is_secret_name(name):
        yield value
    yield from _unlike_words(value)
    if name.lower() == "cookie":
        for pair in value.split(";"):
            yield pair.partition("=")[2].strip()


def _of_url(url: str) -> Iterator[str]:
    """The password, secret parameters, and random parts of the path of a URL."""
    if "://" not in url:
        return
    yield from compiled(URL_PASSWORD).findall(url)
    address, _, query = url.partition("?")
    for pair in query.partition("#")[0].split("&"):
        name, _, value = pair.partition("=")
        if is_secret_name(name):
            yield value
        yield from _unlike_words(value)
    for part in address.split("/")[3:]:
        if len(part) >= 20 and is_mixed(part) and not compiled(WORD).fullmatch(part):
            yield part


def _words_of(part: Mapping[str, Any]) -> list[str]:
    """The words of an entry's command and its arguments."""
    command, args = part.get("command"), part.get("args")
    words: list[Any] = _split(command) if isinstance(command, str) else []
    if isinstance(args, list | tuple):
        words += args
    return [word for word in words if isinstance(word, str)]


def _split(line: str) -> list[str]:
    """The words of a command line, as a shell would read it."""
    import shlex

    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError:  # a quote without its end
        return [word.strip("\"'") for word in line.split()]


def _of_words(words: Sequence[str], deepest: int) -> Iterator[str]:
    """Secrets on a command line: `--token x`, `API_KEY=x`, `-H 'Authorization: Bearer x'`, `-u
    user:x`, addresses, and words that look like nothing else."""
    for word, following in zip(words, (*words[1:], ""), strict=False):
        name, mark, value = word.partition("=")
        yield from _of_url(word)
        yield from _unlike_words(value if mark and compiled(r"[\w-]+").fullmatch(name) else word)
        if not mark and word[:1] == "-" and word[:5] != "--no-" and following[:1] != "-":
            value = following
        if value and is_secret_name(name.lstrip("-")):
            yield value
        if name in _HEADER_FLAGS or word[:2] == "-H":
            header = word[2:] if word[:2] == "-H" and len(word) > 2 else value
            yield from _of_header(*map(str.strip, header.partition(":")[::2]))
        if name in _USER_FLAGS:
            yield value.partition(":")[2]
        if deepest and compiled(r"\s").search(word):
            yield from _of_words(_split(word), deepest - 1)


def _line_of(part: Mapping[str, Any]) -> str:
    """The command line of an entry, as a shell would read it."""
    args = part.get("args")
    words: list[Any] = [part.get("command")]
    if isinstance(args, list | tuple):
        words += args
    line = [word for word in words if isinstance(word, str)]
    return " ".join([*line[:1], *(f"'{word}'" if " " in word else word for word in line[1:])])


def _texts(values: Any) -> Iterator[tuple[str, str]]:
    if isinstance(values, Mapping):
        for name, value in values.items():  # pyright: ignore[reportUnknownVariableType]
            if isinstance(name, str) and isinstance(value, str):
                yield name, value
