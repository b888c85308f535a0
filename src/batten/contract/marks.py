"""Visible marks for what a terminal would obey or hide, in all texts that are shown to people.

What is hidden is told by Unicode's categories (controls, formats, private, unassigned characters
and separators of lines), and by a list of the letters and signs that are drawn as nothing. Letters
that merely look like others are left.
"""

import re

MARK = "\ufffd"
_MOST_IN_A_ROW = 16

_CONTROLS = r"[\x00-\x08\x0b-\x1f\x7f]"
_INVISIBLE = (
    # Joiners and fillers, vowels of Khmer that are never drawn, selectors of variants, the empty
    # notehead, and the place of an object.
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\ufffc"
    "\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
"""What Unicode calls a letter, an accent or a sign, and is drawn as nothing."""
_BLANKS = "[\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]"
_BLANKS_AND_BRAILLE = f"{_BLANKS[:-1]}\u2800]"
_VISIBLE_FORMATS = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd"
"""Signs that enclose the number after them."""

_PICTURE = (
    "[\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u2460-\u24ff\u25a0-\u27bf\u2934"
    "\u2935\u2b00-\u2b73\u2b76-\u2b95\u2b97-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
    "[\U0001f3fb-\U0001f3ff]?[\ufe0e\ufe0f]?"
)
_JOINED_LETTERS = "[\u0600-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u18af\ufb50-\ufdff\ufe70-\ufefc]"
"""Scripts whose letters join, or are kept from it, by an invisible character."""
_MEANT = (
    f"({_PICTURE}(?:\u200d{_PICTURE})*|[0-9#*]\ufe0f\u20e3"
    f"|(?<={_JOINED_LETTERS})[\u200c\u200d](?={_JOINED_LETTERS}))"
)
"""Where an invisible character belongs to the writing: within a pictograph, and between letters."""


def plain(text: str) -> str:
    """Prose with a mark in place of each character that a terminal obeys or does not show.

    Line feeds and tabs stay, blanks of other widths, and what joins pictographs and letters.
    """
    if text.isascii():
        return re.sub(_CONTROLS, MARK, text)
    hidden = [one for one in set(text) if _is_hidden(one)]
    if not hidden:
        return text
    marks = dict.fromkeys(map(ord, hidden), MARK)
    # Every second piece is what `_MEANT` found.
    pieces = re.split(_MEANT, text)
    return "".join(one if at % 2 else one.translate(marks) for at, one in enumerate(pieces))


def exact(text: str) -> str:
    """A command, a path or a name to decide about: invisible characters have no use in it.

    Blanks other than the space are marked too.
    """
    if text.isascii():
        return re.sub(_CONTROLS, MARK, text)
    hidden = [one for one in set(text) if _is_hidden(one) or re.match(_BLANKS_AND_BRAILLE, one)]
    return text.translate(dict.fromkeys(map(ord, hidden), MARK))


def one_line(text: str) -> str:
    """`exact` on one line, so that the text cannot imitate a line of ours."""
    return exact(text.replace("\n", "⏎"))


def prose_line(text: str) -> str:
    """`plain` on one line, for titles and answers."""
    return plain(text.replace("\n", "⏎"))


def crowded(text: str) -> str:
    """`one_line` with long runs of blanks and of marks counted: they could hide what follows."""
    runs = rf"[\s⏎]{{{_MOST_IN_A_ROW},}}|{MARK}{{{_MOST_IN_A_ROW},}}"
    return re.sub(runs, _counted, one_line(text))


def _counted(run: re.Match[str]) -> str:
    what = "hidden characters" if run[0][0] == MARK else "blanks"
    return f" ⟨{len(run[0])} {what}⟩ "


def _is_hidden(one: str) -> bool:
    """Whether a character is drawn as nothing, or obeyed."""
    if one.isprintable():  # not so: all controls, formats, separators, private and unassigned ones
        return re.match(_INVISIBLE, one) is not None
    return not (
        one in "\n\t" or one in _VISIBLE_FORMATS or re.match(_BLANKS, one) or _is_reserved(ord(one))
    )


def _is_reserved(code: int) -> bool:
    """Whether Unicode keeps a code for a pictograph or an ideograph, perhaps of a later version
    than the interpreter's.
    """
    return 0x1F000 <= code <= 0x1FAFF or (0x20000 <= code < 0x40000 and code & 0xFFFE != 0xFFFE)
