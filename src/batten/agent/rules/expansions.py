"""Quotes and expansions within a word, for the reader of command lines.

Commands within substitutions are read by the same reader. What an expansion will be replaced
with is a hole.
"""

import re
from typing import TYPE_CHECKING

from batten.agent.rules.shell import HOLE, TILDE, Unclear

if TYPE_CHECKING:
    from batten.agent.rules.reader import Reader

_VARIABLE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])")
_NUMBERS = re.compile(r"\$\(\([0-9\s+*/%<>=!&|^~?:,-]*\)\)")
"""Arithmetic without names: the value of a name is evaluated in turn, and may run commands."""
_PARAMETER = re.compile(
    r"\$\{(?:[#]?[A-Za-z_][A-Za-z0-9_]*|[#]?[0-9]+|[@*#?$-])(?:\[(?:[@*]|[0-9]+)\])?"
)
_OPERATOR = re.compile(r":[-?+]|[-?+]|##?|%%?|//|/[#%]?|\^\^?|,,?")
_RANGE = re.compile(r":\s*[0-9]+(?::[0-9]+)?\}")
_PLAIN_ANSI = re.compile(r"(?:[^\\]|\\[nt\\'\"])*", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t"}
"""What escapes of `$'…'` stand for, other than themselves; of those that are read."""
_TILDE = re.compile(r"(?:^|(?<=[=:]))~(?![/:]|$)[^/:]*")
_BRACES = re.compile(r"[A-Za-z0-9_./:=@%+,~*?{}-]*")
"""A word whose braces are expanded: one without quotes and other expansions."""
_MOST_BRACED = 64


def tilded(run: str, *, begins: bool, ends: bool) -> str:
    """A part of a word without quotes, with its tildes replaced. `begins`, `ends`: whether the word
    does so here.

    Bash expands them at the beginning, and behind `=` and `:` where that is an assignment; zsh in
    more places. `~` and `~/` are home, and stay.
    """
    if "~" not in run:
        return run
    found = _TILDE.sub(TILDE, run if begins else f"/{run}")
    found = found if begins else found[1:]
    # What stands behind it may be quoted, and then it is no tilde, or it may be a name.
    before = found[-2:-1] in ("=", ":") if len(found) > 1 else begins
    return found[:-1] + TILDE if found.endswith("~") and before and not ends else found


def braced(word: str) -> list[str] | None:
    """The words that braces make of one; None if that is not certain."""
    if ".." in word.partition("{")[2] or not _BRACES.fullmatch(word):
        return None
    found = _alternatives(word, 0, "")
    if found is None or found[1] != len(word):
        return None
    return [each for each in found[0] if each]


def _alternatives(word: str, at: int, ends: str) -> tuple[list[str], int] | None:
    """The texts that a word or a part of it stands for, up to one of `ends`, and where that is."""
    texts = [""]
    while at < len(word) and word[at] not in ends:
        if word[at] == "}":
            return None
        if word[at] != "{":
            texts = [text + word[at] for text in texts]
            at += 1
            continue
        inner: list[str] = []
        count = 0
        while word[at : at + 1] != "}":
            part = _alternatives(word, at + 1, ",}")
            if part is None or part[1] >= len(word):
                return None
            inner += part[0]
            count += 1
            at = part[1]
        at += 1
        if count < 2 or len(texts) * len(inner) > _MOST_BRACED:
            return None
        texts = [text + each for text in texts for each in inner]
    return texts, at


class Expansions:
    def __init__(self, reader: "Reader") -> None:
        self._reader = reader

    def quoted(self, character: str) -> str:
        """What stands for a quote or an expansion that begins here with this character."""
        match character:
            case "\\":
                return self._escape()
            case "'":
                return self._single()
            case '"':
                return self._double()
            case "`":
                return self._backquoted(within_double=False)
            case _:
                return self._dollar(within_double=False)

    def document(self) -> None:
        """The whole text of the reader as the body of a here-document."""
        reader = self._reader
        while reader.at < len(reader.text):
            match reader.peek():
                case "\\":
                    reader.at += 2
                case "`":
                    self._backquoted(within_double=False)
                case "$":
                    self._dollar(within_double=True)
                case _:
                    reader.at += 1

    def _escape(self) -> str:
        following = self._reader.peek(2)[1:]
        if following in ("", "\n"):
            raise Unclear("a word goes on in the next line")
        self._reader.at += 2
        return following

    def _single(self) -> str:
        reader = self._reader
        end = reader.text.find("'", reader.at + 1)
        if end < 0:
            raise Unclear("a quote is not closed")
        text = reader.text[reader.at + 1 : end]
        reader.at = end + 1
        return text

    def _double(self) -> str:
        reader = self._reader
        reader.at += 1
        pieces: list[str] = []
        while (character := reader.peek()) != '"':
            if not character:
                raise Unclear("a quote is not closed")
            if character == "\\":
                escaped = reader.peek(2)[1:]
                reader.at += 2
                if escaped == "\n":
                    continue
                pieces.append(escaped if escaped in ("$", "`", '"', "\\") else "\\" + escaped)
            elif character == "`":
                pieces.append(self._backquoted(within_double=True))
            elif character == "$":
                pieces.append(self._dollar(within_double=True))
            else:
                pieces.append(character)
                reader.at += 1
        reader.at += 1
        return "".join(pieces)

    def _backquoted(self, *, within_double: bool) -> str:
        reader = self._reader
        escapable = '`\\$"' if within_double else "`\\$"
        pieces: list[str] = []
        at = reader.at + 1
        while True:
            if at >= len(reader.text):
                raise Unclear("a backquote is not closed")
            character = reader.text[at]
            if character == "`":
                break
            if character == "\\" and reader.text[at + 1 : at + 2] in tuple(escapable):
                at += 1
                character = reader.text[at]
            pieces.append(character)
            at += 1
        reader.at = at + 1
        reader.within("".join(pieces))
        return HOLE

    def _dollar(self, *, within_double: bool) -> str:
        reader = self._reader
        following = reader.peek(2)[1:]
        if following == "(":
            if reader.peek(3) == "$((":
                return self._arithmetic()
            reader.at += 2
            reader.substitution()
            return HOLE
        if following == "{":
            return self._parameter(within_double=within_double)
        if following == "'" and not within_double:
            return self._ansi()
        if following == '"' and not within_double:
            reader.at += 1
            return self._double()
        if following in ("[", "\\"):
            raise Unclear("it has an unusual expansion")
        found = _VARIABLE.match(reader.text, reader.at)
        if found is None:
            reader.at += 1
            return "$"
        reader.at = found.end()
        return HOLE

    def _ansi(self) -> str:
        reader = self._reader
        found = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL).match(reader.text, reader.at)
        if found is None:
            raise Unclear("a quote is not closed")
        reader.at = found.end()
        if not _PLAIN_ANSI.fullmatch(found[1]):
            return HOLE
        return re.sub(r"\\(.)", lambda each: _ESCAPED.get(each[1], each[1]), found[1])

    def _arithmetic(self) -> str:
        found = _NUMBERS.match(self._reader.text, self._reader.at)
        if found is None:
            raise Unclear("it evaluates an expression")
        self._reader.at = found.end()
        return HOLE

    def _parameter(self, *, within_double: bool) -> str:
        """`${name}` and its operators, apart from those that assign or evaluate."""
        reader = self._reader
        found = _PARAMETER.match(reader.text, reader.at)
        if found is None:
            raise Unclear("it has an unusual expansion")
        reader.at = found.end()
        in_range = _RANGE.match(reader.text, reader.at)
        if in_range is not None:
            reader.at = in_range.end()
            return HOLE
        if reader.peek() != "}":
            operator = _OPERATOR.match(reader.text, reader.at)
            if operator is None:
                raise Unclear("it has an unusual expansion")
            reader.at = operator.end()
        while (character := reader.peek()) != "}":
            if not character or character in "'\\{<>" or (character == '"' and within_double):
                raise Unclear("it has an unusual expansion")
            if character == '"':
                self._double()
            elif character == "`":
                self._backquoted(within_double=within_double)
            elif character == "$":
                self._dollar(within_double=within_double)
            else:
                reader.at += 1
        reader.at += 1
        return HOLE
