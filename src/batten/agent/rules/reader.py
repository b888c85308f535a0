"""A strict reader of bash: a recursive descent over the text, without a separate lexer, since
what a character means depends on where it stands.

It reads lists, pipelines, groups, subshells, `if`, `while`, `until`, `for`, `case`, `[[`, all
quotes, substitutions and here-documents. It raises `Unclear` for the rest (functions, arrays,
arithmetic with names, `coproc`, `select`, extended patterns) and for everything that bash would
refuse.
"""

import re

from batten.agent.rules.expansions import Expansions, braced, tilded
from batten.agent.rules.shell import (
    HOLE,
    MAX_DEPTH,
    MAX_LENGTH,
    NAMES,
    PIPE,
    TILDE,
    Redirect,
    SimpleCommand,
    Unclear,
    name_set,
)

_REFUSED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_META = frozenset(" \t\n;&|()<>")
_PLAIN = re.compile(r"[A-Za-z0-9_./:=@%+,~^-]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"[a-z]+|[{}!]|\[\[|\]\]")
_REDIRECT = re.compile(r"([0-9]*)(&>>|&>|<<<|<<-|<<|<>|<&|>>|>\||>&|<|>)")
_RESERVED = name_set(
    "if then elif else fi for while until do done case esac in select function coproc time "
    "{ } ! [[ ]]"
)
_ENDS = name_set("then elif else fi do done esac }")
_TEST_OPERATORS = frozenset(("-v", "-R", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "=~"))
"""Of `[[`: those that evaluate a name or an expression, and the one with a syntax of its own."""


class Reader:
    """Reads one text. `program` returns every simple command in it."""

    def __init__(self, text: str, depth: int = 0) -> None:
        if len(text) > MAX_LENGTH:
            raise Unclear("it is too long")
        if depth > MAX_DEPTH:
            raise Unclear("commands are nested too deep")
        if _REFUSED.search(text):
            raise Unclear("it has control characters")
        self.text = text
        self.at = 0
        self.depth = depth
        self.commands: list[SimpleCommand] = []
        self.documents: list[tuple[str, bool, bool]] = []
        """Here-documents whose bodies follow: the delimiter, tabs are stripped, it is quoted."""
        self._expansions = Expansions(self)

    def program(self) -> tuple[SimpleCommand, ...]:
        self._list(frozenset())
        if self.at < len(self.text):
            raise Unclear(f"{self.text[self.at]!r} is not expected")
        if self.documents:
            raise Unclear("a here-document has no body")
        return tuple(self.commands)

    def document(self) -> tuple[SimpleCommand, ...]:
        """The commands within the body of a here-document."""
        self._expansions.document()
        return tuple(self.commands)

    def substitution(self) -> None:
        """The list of a substitution, up to and with its closing parenthesis."""
        if self.documents:
            raise Unclear("a substitution begins before a here-document has ended")
        self._deeper()
        self._list(frozenset())
        if self.documents:
            raise Unclear("a here-document has no body")
        self.expect(")")
        self.depth -= 1

    def within(self, text: str) -> None:
        """Read the text of a substitution that is not part of ours."""
        if self.documents:
            raise Unclear("a substitution begins before a here-document has ended")
        self.commands.extend(Reader(text, self.depth + 1).program())

    def peek(self, length: int = 1) -> str:
        return self.text[self.at : self.at + length]

    def expect(self, what: str) -> None:
        if not self.text.startswith(what, self.at):
            raise Unclear(f"{what!r} is missing")
        self.at += len(what)

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unclear("commands are nested too deep")

    def _blanks(self) -> None:
        while True:
            if self.peek() in (" ", "\t"):
                self.at += 1
            elif self.peek(2) == "\\\n":
                self.at += 2
            else:
                break
        if self.peek() == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end

    def _line_ends(self) -> None:
        """Blanks, comments and line ends, with the bodies of here-documents."""
        self._blanks()
        while self.peek() == "\n":
            self.at += 1
            self._bodies()
            self._blanks()

    def _bodies(self) -> None:
        documents, self.documents = self.documents, []
        for delimiter, stripped, quoted in documents:
            start = self.at
            while True:
                if self.at >= len(self.text):
                    raise Unclear("a here-document is not ended")
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                body_end, self.at = self.at, min(end + 1, len(self.text))
                if (line.lstrip("\t") if stripped else line) == delimiter:
                    break
            if not quoted:
                body = self.text[start:body_end]
                if "\\\n" in body:
                    raise Unclear("a here-document joins lines")
                self.commands.extend(Reader(body, self.depth + 1).document())

    def _reserved(self) -> str:
        """The reserved word that stands here; empty if there is none."""
        found = _WORD.match(self.text, self.at)
        if found is None or found[0] not in _RESERVED:
            return ""
        after = self.text[found.end() : found.end() + 1]
        if self.text.startswith("\\\n", found.end()):
            raise Unclear("a reserved word goes on in the next line")
        return found[0] if not after or after in _META else ""

    def _take(self, word: str) -> None:
        self._line_ends()
        if self._reserved() != word:
            raise Unclear(f"{word!r} is missing")
        self.at += len(word)

    def _list(self, ends: frozenset[str]) -> None:
        """Pipelines joined by operators, until a reserved word of `ends`, `)`, `;;` or the end."""
        self._line_ends()
        count = 0
        while not self._at_end(ends):
            self._pipeline()
            count += 1
            self._blanks()
            if self.peek(2) in ("&&", "||"):
                self.at += 2
                self._line_ends()
                if self._at_end(ends):
                    raise Unclear("a command is missing")
                continue
            if self.peek(2) in (";;", ";&"):
                break
            if self.peek() in (";", "&"):
                self.at += 1
                self._blanks()
            elif self.peek() != "\n":
                break
            self._line_ends()
        if not count and (ends or self.peek() == ")"):
            raise Unclear("a command is missing")

    def _at_end(self, ends: frozenset[str]) -> bool:
        if self.at >= len(self.text) or self.peek() == ")" or self.peek(2) in (";;", ";&"):
            return True
        word = self._reserved()
        if word in _ENDS and word not in ends:
            raise Unclear(f"{word!r} is not expected")
        return bool(word) and word in ends

    def _pipeline(self) -> None:
        while (word := self._reserved()) in ("time", "!"):
            self.at += len(word)
            self._blanks()
            if word == "time" and self.peek() == "-":
                if self.peek(3) not in ("-p ", "-p\t"):
                    raise Unclear("`time` has an unusual option")
                self.at += 3
                self._blanks()
            if self.at >= len(self.text) or self.peek() in (";", "\n", "&", "|", ")"):
                raise Unclear("a command is missing")
        self._command()
        self._blanks()
        while self.peek() == "|" and self.peek(2) != "||":
            self.at += 2 if self.peek(2) == "|&" else 1
            self._line_ends()
            if self._reserved() in ("time", "!"):
                raise Unclear("a reserved word is not expected")
            self._command()
            self._blanks()

    def _command(self) -> None:
        word = self._reserved()
        start = self.at
        if self.peek() == "(":
            if self.peek(2) == "((":
                raise Unclear("it has an arithmetic command")
            self.at += 1
            self._deeper()
            self._list(frozenset())
            self.expect(")")
            self.depth -= 1
        elif not word:
            return self._simple()
        else:
            self._deeper()
            self.at += len(word)
            self._compound(word)
            self.depth -= 1
        redirects: list[Redirect] = []
        self._blanks()
        while self._redirect(redirects):
            self._blanks()
        if self.at < len(self.text) and self.peek() not in "\n;&|)":
            raise Unclear(f"{self.peek()!r} is not expected")
        if redirects:
            source = self.text[start : self.at]
            self.commands.append(SimpleCommand((), source, (), tuple(redirects)))
        return None

    def _compound(self, word: str) -> None:
        match word:
            case "{":
                self._list(frozenset("}"))
                self._take("}")
            case "if":
                self._if()
            case "while" | "until":
                self._list(frozenset(("do",)))
                self._body()
            case "for":
                self._for()
            case "case":
                self._case()
            case "[[":
                self._test()
            case _:
                raise Unclear(f"it has {word!r}")

    def _body(self) -> None:
        self._take("do")
        self._list(frozenset(("done",)))
        self._take("done")

    def _if(self) -> None:
        self._list(frozenset(("then",)))
        self._take("then")
        self._list(frozenset(("elif", "else", "fi")))
        while self._reserved() == "elif":
            self.at += 4
            self._list(frozenset(("then",)))
            self._take("then")
            self._list(frozenset(("elif", "else", "fi")))
        if self._reserved() == "else":
            self.at += 4
            self._list(frozenset(("fi",)))
        self._take("fi")

    def _for(self) -> None:
        self._blanks()
        name = _NAME.match(self.text, self.at)
        if name is None:
            raise Unclear("it has a `for` without a name")
        self.at = name.end()
        values = [HOLE]
        self._line_ends()
        if self._reserved() == "in":
            self.at += 2
            self._blanks()
            while self.at < len(self.text) and self.peek() not in ";\n":
                values += self._words()
                self._blanks()
            if self.at >= len(self.text):
                raise Unclear("a `for` is not ended")
        self.commands.append(SimpleCommand((), name[0], tuple((name[0], each) for each in values)))
        if self.peek() == ";":
            self.at += 1
        self._body()

    def _case(self) -> None:
        self._blanks()
        self.word()
        self._take("in")
        self._line_ends()
        while self._reserved() != "esac":
            if self.peek() == "(":
                self.at += 1
            while True:
                self._blanks()
                self.word()
                self._blanks()
                if self.peek() != "|":
                    break
                self.at += 1
            self.expect(")")
            self._line_ends()
            if self._reserved() != "esac" and self.peek() != ";":
                self._list(frozenset(("esac",)))
            if self._reserved() == "esac":
                break
            for end in (";;&", ";;", ";&"):
                if self.text.startswith(end, self.at):
                    self.at += len(end)
                    break
            else:
                raise Unclear("a `case` is not ended")
            self._line_ends()
        self._take("esac")

    def _test(self) -> None:
        """`[[ … ]]`: words and operators; nothing in it is run but substitutions."""
        self._line_ends()
        while self._reserved() != "]]":
            if self.at >= len(self.text):
                raise Unclear("a `[[` is not ended")
            if self.peek(2) in ("&&", "||"):
                self.at += 2
            elif self.peek(2) in ("<(", ">("):
                self.word()
            elif self.peek() in "()<>":
                self.at += 1
            elif self.peek() in ";&|":
                raise Unclear("`[[` has an operator that it must not have")
            else:
                word = self.word()
                if word in _TEST_OPERATORS:
                    raise Unclear("`[[` evaluates an expression")
            self._line_ends()
        self.at += 2

    def _simple(self) -> None:
        start = self.at
        words: list[str] = []
        assignments: list[tuple[str, str]] = []
        redirects: list[Redirect] = []
        end = self.at
        while True:
            if self._redirect(redirects):
                pass
            elif self.at >= len(self.text) or (
                self.peek() in "\n;&|)" or (self.peek() in "<>" and self.peek(2)[1:] != "(")
            ):
                break
            elif self.peek() == "(":
                raise Unclear("it has a function or an array")
            elif not words and (name := self._assigned()):
                assignments.append((name, self._value()))
            else:
                words += self._words() if words else [self.word()]
            end = self.at
            self._blanks()
        if not (words or assignments or redirects):
            found = self.peek()
            raise Unclear(f"{found!r} is not expected" if found else "a command is missing")
        source = self.text[start:end]
        self.commands.append(
            SimpleCommand(tuple(words), source, tuple(assignments), tuple(redirects))
        )

    def _assigned(self) -> str:
        """The name that is assigned here, with the reader behind its `=`; empty if none is."""
        name = _NAME.match(self.text, self.at)
        if name is None:
            return ""
        after = self.text[name.end() : name.end() + 2]
        if after[:1] == "[" or after == "\\\n":
            raise Unclear("it assigns to an element of an array")
        if after[:1] != "=" and after != "+=":
            return ""
        self.at = name.end() + (1 if after[0] == "=" else 2)
        if self.peek() == "(":
            raise Unclear("it assigns an array")
        return name[0]

    def _value(self) -> str:
        if self.at >= len(self.text) or (self.peek() in _META and self.peek(2) not in ("<(", ">(")):
            return ""
        return self.word()

    def _redirect(self, redirects: list[Redirect]) -> bool:
        """Read one redirection, if one stands here."""
        found = _REDIRECT.match(self.text, self.at)
        if found is None or self.text.startswith(("<(", ">("), self.at):
            return False
        number, operator = found.groups()
        if number and operator.startswith("&"):
            return False
        if self.text.startswith("\\\n", found.end()):
            raise Unclear("an operator goes on in the next line")
        self.at = found.end()
        self._blanks()
        if operator in ("<&", ">&") and self.peek() == "-":
            # A token of its own, whatever stands behind it.
            self.at += 1
            redirects.append(Redirect(operator, "-"))
            return True
        if operator in ("<<", "<<-"):
            redirects.append(Redirect("<<", self._delimiter(operator == "<<-")))
            return True
        if self.at >= len(self.text) or (self.peek() in _META and self.peek(2) not in ("<(", ">(")):
            raise Unclear("a redirection has no target")
        redirects.append(Redirect(operator, self.word()))
        return True

    def _delimiter(self, stripped: bool) -> str:
        """The delimiter of a here-document, whose body follows the next line end."""
        start = self.at
        while self.at < len(self.text) and self.peek() not in _META:
            self.at += 1
        source = self.text[start : self.at]
        found = re.fullmatch(r"'([\w.!-]+)'|\"([\w.!-]+)\"|([\w.!-]+)", source)
        if found is None:
            raise Unclear("a here-document has an unusual delimiter")
        delimiter = next(group for group in found.groups() if group is not None)
        self.documents.append((delimiter, stripped, found[3] is None))
        return delimiter

    def _words(self) -> list[str]:
        """One word, or those that its braces make of it."""
        start = self.at
        word = self.word()
        found = braced(self.text[start : self.at]) if word in (HOLE, TILDE) else None
        return [word] if found is None else [Reader(each).word() for each in found]

    def word(self) -> str:
        """One word, without its quotes, with holes for what is not known."""
        start = self.at
        pieces: list[str] = []
        bare = ""
        """The part that is not quoted, to find braces."""
        bracket: int | None = None
        while self.at < len(self.text):
            character = self.peek()
            if self.peek(2) in ("<(", ">("):
                if pieces:
                    raise Unclear("a process substitution is part of a word")
                self.at += 2
                self.substitution()
                pieces.append(PIPE)
            elif character in _META:
                break
            elif character in "\\'\"`$":
                pieces.append(self._expansions.quoted(character))
            elif character in "*?":
                pieces.append(NAMES)
                self.at += 1
            else:
                if character == "[" and bracket is None and self.peek(2)[1:] not in _META:
                    bracket = len(pieces)
                plain = _PLAIN.match(self.text, self.at)
                run = plain[0] if plain else character
                bare += run
                begins = self.at == start
                self.at += len(run)
                ends = self.at >= len(self.text) or self.peek() in _META
                pieces.append(tilded(run, begins=begins, ends=ends))
        if self.at == start:
            raise Unclear(
                f"{self.peek()!r} is not expected" if self.peek() else "a word is missing"
            )
        self._check_word(start, bare)
        if "{" in bare and "}" in bare and ("," in bare or ".." in bare):
            # Brace expansion makes several words of one.
            return TILDE if "~" in bare else HOLE
        if bracket is not None and "]" in bare:
            tail = "".join(pieces[bracket:])
            pieces[bracket:] = [HOLE if HOLE in tail or "/" in tail else NAMES]
        return "".join(pieces)

    def _check_word(self, start: int, bare: str) -> None:
        if self.peek() == "(":
            raise Unclear("it has a function, an array or an extended pattern")
        if self.documents and "\n" in self.text[start : self.at]:
            raise Unclear("a word goes on behind a here-document")
        if self.peek() in ("<", ">") and re.fullmatch(r"\{[A-Za-z_][A-Za-z0-9_]*\}", bare):
            raise Unclear("a redirection is kept in a variable")
