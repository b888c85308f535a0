"""Programs of awk: whether all that one does is to compute and print, token by token.

Files, pipes and commands come from a few words and operators. A program is split as awk splits
it, so that those in a string, an expression or a comment do not count and no others are missed;
where awks differ it is not read.
"""

import re

from batten.agent.rules.shell import name_set

_FUNCTIONS = name_set(
    "length substr index split sub gsub match sprintf sin cos atan2 exp log sqrt int rand srand "
    "tolower toupper gensub strftime mktime systime strtonum and or xor lshift rshift compl asort "
    "asorti typeof isarray patsplit"
)
_STATEMENTS = name_set(
    "if else while for do break continue next exit return delete in print printf BEGIN END"
)
_REFUSED = name_set(
    "getline system close fflush function func ARGV ARGC ENVIRON PROCINFO SYMTAB FUNCTAB "
    "BINMODE LINT TEXTDOMAIN BEGINFILE ENDFILE bindtextdomain dcgettext dcngettext namespace"
)
_PARENTHESISED = name_set("if while for print printf exit return in next delete else do")
_TOKEN = re.compile(
    r"(?P<blank>[ \t]+|\#[^\n]*)"
    r"|(?P<line>\n)"
    r"|(?P<text>\"(?:[^\"\\\n]|\\[^\n])*\")"
    r"|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<operator>\|\||&&|\*\*=|\*\*|\+\+|--|[-+*%^!=<>]=|!~|[-+*%^!<>=~?:,;(){}\[\]$])"
)
_REGEX = re.compile(r"/(?:[^/\\\[\n]|\\[^\n]|\[\^?+\]?+(?:[^]\\\[/\n]|\\[^]\n]|\[:[a-z]+:\])*\])+/")
_ENDS_STATEMENT = frozenset(";{}")
_GOES_ON = frozenset((",", "&&", "||", "?", ":", "{", "else", "do", "", "\n"))
"""Tokens behind which a statement may go on in the next line."""
_VALUES = ("text", "number")
_UNCLEAR = _FUNCTIONS | {"$", "++", "--", "regex", "head"}
"""Tokens behind which a slash divides for one awk and begins an expression for another."""


def only_prints(program: str) -> bool:
    """Whether awk does nothing with a program but read its input and print."""
    at, last, printing = 0, "", False
    opened: list[str] = []
    """What stands before each parenthesis that is open."""
    while at < len(program):
        if program[at] == "/":
            if last in _UNCLEAR:
                return False
            divides = last in (")", "]", "text", "number") or last[:1].isalpha() or last[:1] == "_"
            found = None if divides and last not in _STATEMENTS else _REGEX.match(program, at)
            if found is None and (not divides or last in _STATEMENTS):
                return False
            at, last = (at + 1, "/") if found is None else (found.end(), "regex")
            continue
        token = _TOKEN.match(program, at)
        if token is None:
            return False
        at, kind, text = token.end(), token.lastgroup or "", token[0]
        if kind == "blank":
            continue
        if kind == "line":
            printing = printing and last in _GOES_ON
            last = "\n"
            continue
        if not _is_harmless(text, kind, program[at:], printing=printing):
            return False
        printing = text in ("print", "printf") or (printing and text not in _ENDS_STATEMENT)
        if text == "(":
            opened.append(last)
        before = opened.pop() if text == ")" and opened else ""
        is_head = before in ("if", "while", "for")
        last = "head" if is_head else kind if kind in _VALUES else text
    return True


def _is_harmless(text: str, kind: str, rest: str, *, printing: bool) -> bool:
    if kind == "name":
        is_call = rest.lstrip(" \t").startswith("(")
        is_known = text in _FUNCTIONS or text in _PARENTHESISED
        return text not in _REFUSED and (is_known or not is_call)
    # Behind `print` it names a file.
    return not (printing and text in (">", ">="))
