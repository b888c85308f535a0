"""Programs that run the command behind their options and do nothing else: `env`, `xargs`."""

import re

from batten.agent.rules.inner import (
    NOTHING,
    UNKNOWN,
    Options,
    Runs,
    anything,
    lines_in,
    text_runs,
)
from batten.agent.rules.shell import HOLE, NAMES, SimpleCommand, is_known

_READS_FILE = r"-[0rtxo]*a|--arg-f"
WRAPPERS: dict[str, Options] = {
    "timeout": Options("v", "ks", ("--foreground", "--preserve-status", "--verbose",
                                    "--kill-after=", "--signal="), 1),
    "nice": Options("", "n", ("--adjustment=",)),
    "nohup": Options(),
    "stdbuf": Options("", "ioe", ("--input=", "--output=", "--error=")),
    "ionice": Options("t", "cn", ("--class=", "--classdata=", "--ignore")),
    "time": Options("pv", "", ("--portability", "--verbose")),
    "command": Options("p"),
    "builtin": Options(),
    "setsid": Options("wfc", "", ("--wait", "--fork", "--ctty")),
    "env": Options("i0", "u", ("--ignore-environment", "--unset=", "--null")),
    "xargs": Options("0rtxoile", "nPLsdEaSR", (
        "--null", "--no-run-if-empty", "--verbose", "--exit", "--open-tty", "--replace",
        "--max-lines", "--eof", "--max-args=", "--max-procs=", "--max-lines=", "--eof=",
        "--replace=", "--delimiter=", "--max-chars=", "--arg-file=", "--process-slot-var=")),
}  # fmt: skip


def wrapped(name: str, words: tuple[str, ...]) -> Runs:
    start, replaced = _after_options(words, WRAPPERS[name], name)
    if start is None:
        return anything(_split_strings(words) if name == "env" else words, is_known=False)
    inner = words[start:]
    variables: list[tuple[str, str]] = []
    while name == "env" and inner and "=" in inner[0]:
        variables.append((inner[0].partition("=")[0], inner[0].partition("=")[2]))
        inner = inner[1:]
    if name == "xargs":
        inner = tuple(word.replace(replaced, HOLE) for word in inner) if replaced else inner
        inner = (*(inner or ("echo",)), *(() if replaced else (HOLE,)))
    if not inner and not variables:
        return NOTHING if name in ("env", "command") else UNKNOWN
    command = SimpleCommand(inner, " ".join(inner), tuple(variables))
    # A file of arguments is read, too.
    reads = name == "xargs" and any(re.match(_READS_FILE, word) for word in words[1:start])
    return Runs((command,), is_known=not reads, is_wrapper=not reads, at=start)


def _split_strings(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words of `env -S 'a b'`, however the option is written."""
    bare = (re.sub(r"^(?:-[A-Za-z0-9]*S|--s[a-z-]*=)", "", word) for word in words)
    pieces = (piece for word in bare for piece in _split(word) or ("",))
    return tuple(re.sub(r"\$\{.*", HOLE, piece) for piece in pieces)


def _split(text: str) -> list[str]:
    import shlex

    try:
        return shlex.split(text)
    except ValueError:
        return re.sub(r"['\"]", "", text).split()


def _after_options(words: tuple[str, ...], options: Options, name: str) -> tuple[int | None, str]:
    """Where the command of a wrapper begins, None if that is not certain; and what `xargs -I`
    replaces."""
    at, replaced = 1, ""
    while at < len(words) and words[at].startswith("-") and (words[at] != "-" or name == "env"):
        word = words[at]
        if not is_known(word):
            return None, ""
        at += 1
        if word == "--":
            break
        if word == "-" or (name == "nice" and re.fullmatch(r"-[0-9]+", word)):
            continue
        cluster = word[1:].lstrip(options.flags.rstrip("ile" if name == "xargs" else ""))
        if name == "xargs" and cluster[:1] in ("I", "J"):
            replaced = cluster[1:] or (words[at] if at < len(words) else "")
            at += 0 if cluster[1:] else 1
            if not replaced:
                return None, ""
        elif name == "xargs" and (cluster[:1] in ("i", "l", "e") or word.startswith("--replace")):
            # Their values are optional, and stand in the same word.
            is_replaced = cluster[:1] == "i" or word.startswith("--replace")
            value = word.partition("=")[2] if word[:2] == "--" else cluster[1:]
            replaced = (value or "{}") if is_replaced else replaced
        elif word.startswith("--"):
            if word in options.words:
                continue
            if word.partition("=")[0] + "=" not in options.words:
                return None, ""
            at += 0 if "=" in word else 1
        elif cluster[:1] and cluster[0] in options.values:
            at += 0 if cluster[1:] else 1
        elif cluster:
            return None, ""
    if any(not is_known(word) for word in words[1 : at + options.operands]):
        return None, ""
    return at + options.operands, replaced


_SSH_FLAGS = r"-[46AaCfGgKkMNnqsTtVvXxYy]+"
_SSH_VALUES = r"(?s)-[46AaCfGgKkMNnqsTtVvXxYy]*[BbcDEeFIiJLlmOoPpQRSWw](.*)"


def ssh(words: tuple[str, ...]) -> Runs:
    """`ssh` joins the words behind the host to a line, which another machine runs."""
    at, hosts = 1, 0
    while at < len(words) and (words[at][:1] == "-" or not hosts):
        if words[at][:1] in (HOLE, NAMES):
            # It may be an option.
            return anything(words, is_known=False)
        value = re.fullmatch(_SSH_VALUES, words[at])
        if words[at][:1] != "-":
            hosts += 1
        elif value is None and not re.fullmatch(_SSH_FLAGS, words[at]) and words[at] != "--":
            return anything(words, is_known=False)
        at += 2 if value is not None and not value[1] else 1
    if len(words) == 1:
        return NOTHING
    rest = words[at:]
    # Without a command it is a shell on that machine, about which no rule says anything.
    line = text_runs(" ".join(rest), at).commands if rest else (SimpleCommand(("ssh",)),)
    settings = (word for word in words[1:at] if re.search(r"[=\s]", word))
    lines = (each for word in settings for each in lines_in(word, is_project=False))
    return Runs((*line, *lines), is_known=False, at=1)
