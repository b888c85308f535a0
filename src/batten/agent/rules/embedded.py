"""Command lines that stand in texts of other languages: `gdb -ex 'shell …'`, `vim -c '!…'`,
`python -c 'os.system("…")'`.

Those languages are not read. What is found is a command that stands literally behind a word or a
mark with which they run one; what they build themselves is not.
"""

import os
import re
from collections.abc import Sequence

from batten.agent.rules.inner import ANYTHING, SHELLS, Commands, command_of
from batten.agent.rules.shell import HOLE, SimpleCommand, name_set

_LANGUAGES = name_set(
    "python python2 python3 pypy pypy3 ipython perl ruby irb node nodejs deno bun php lua "
    "luajit awk gawk mawk nawk original-awk tclsh wish expect R Rscript julia guile osascript "
    "elixir gdb lldb vi vim nvim vimdiff gvim rvim view rview ex ed red emacs less more most "
    "sqlite3 sqlite mysql mariadb psql socat ftp sftp lftp mutt neomutt mail mailx dc gnuplot "
    "fzf bind make gmake tmux screen latex pdflatex tex m4 octave kak"
)
"""Programs with a language of their own, in which a command of the shell can stand."""
# Texts, and compiled when they are needed: few lines have such a program.
_MARKS = (
    r"(?i)!|`|\||\b(?:shell|system|subprocess|popen|exec|spawn|qx|getline|getoutput|getstatusoutput"
    r"|passthru|proc_open|pcntl_exec|call-process|start-process|syscmd|esyscmd|term|terminal"
    r"|program|execute|become|reload|write18|send-keys|run-shell|if-shell|pipe-pane|stuff)"
    r"(?=[^A-Za-z]|\w*[(:'\"])"
    r"|\b(?:os\.\w{1,30}|\w{0,30}(?:exec|spawn|popen|system|check_output|check_call)\w{0,30})"
    r"[ (\"']"
    r"|--eval|[\"'][^\"']*[\"']\s*:"
)
"""What runs a command in one of them; a command may stand behind it."""
_MAKE = r"--eval|\$\(shell|;|\n\t"
_SED = r"(?:^|[^A-Za-z])e\s|/[gpIiMm0-9]*e[gpIiMm0-9]*\s*(?:$|[;}\n])"
_ADDRESS = rf"(?i)(?:exec|system|shell):[\"']?{HOLE}"
"""A command as `socat` takes it, that is not known."""
_LISTS = r"[\"']\s*,\s*\[?\s*[\"']"
"""Between the words of a command in a list: `["rm", "x"]`."""
_SED_WORDS = r"[;&|\n\t`(){}<>\[\]'\"$!:,=@/]+(?:e\s)?|^\d+e\s|\\n|\\t"
_WORDS = (
    r"(?i)\b(?:echo|printf)\s(?:\s*-\w+\s)*|[;&|\n\t`(){}<>\[\]'\"$!:,=@]+|\\n|\\t"
    r"|\b(?:shell|system|exec|spawn(?:\s+-\w+)*|program|term|terminal|run-shell|send-keys|stuff"
    r"|getline)\b"
)
"""What stands between a command and the rest of a text."""


def has_language(words: tuple[str, ...]) -> bool:
    """Whether a command is a program in whose input a command of the shell can stand."""
    name = words[0].rpartition("/")[2] if words else ""
    return re.sub(r"[\d.]+$", "", name) in _LANGUAGES or name in _LANGUAGES or name == "sed"


def embedded(command: SimpleCommand) -> Commands:
    """Commands that stand in the arguments of such a program, or in a text that it is given."""
    if not has_language(command.words):
        return ()
    name = command.words[0].rpartition("/")[2]
    texts = [
        *command.words[1:],
        *(each.target for each in command.redirects if each.operator == "<<<"),
    ]
    if name == "sed":
        return tuple(
            each for text in texts if re.search(_SED, text) for each in _parts(text, _SED_WORDS)
        )
    if name in ("make", "gmake"):
        return tuple(
            each for text in texts if re.search(_MAKE, text) for each in _parts(text, _WORDS)
        )
    return tuple(each for text in texts for each in commands_in(text))


def commands_in(text: str) -> Commands:
    """What may be a command behind a mark in a text of such a language."""
    if re.match(_ADDRESS, text):
        return (ANYTHING,)
    return _parts(text, _WORDS) if re.search(_MARKS, text) else ()


def piped(text: str, commands: Sequence[SimpleCommand]) -> Commands:
    """What may be a command in the input of such a program: a here-document, or what another one
    writes. Both stand somewhere in the line, as does a script that it writes and runs."""
    if _runs_what_it_writes(commands):
        return _parts(text, _WORDS)
    if not ("<<" in text or "|" in text) or not any(has_language(each.words) for each in commands):
        return ()
    marked = re.search(_MARKS, text.replace("||", ";").replace("|", ";")) or re.search(_MAKE, text)
    return _parts(text, _WORDS) if marked else ()


def _runs_what_it_writes(commands: Sequence[SimpleCommand]) -> bool:
    written = {
        os.path.normpath(each.target)
        for command in commands
        for each in command.redirects
        if each.operator in (">", ">>", ">|", "&>")
    }
    if not written:
        return False
    scripts = SHELLS | {"source", "."}
    return any(
        os.path.normpath(word) in written
        for command in commands
        for word in (command.words if command.words[:1] and command.words[0] in scripts
                     else [each for each in command.words[:1] if "/" in each])
    )  # fmt: skip


def _parts(text: str, ends: str) -> Commands:
    plain = re.sub(_LISTS, " ", re.sub(r"#![^\s\\]*", "", text))
    pieces = (piece.split() for piece in re.split(ends, plain))
    # What a hole stands for here is not known, and it is a text of another language.
    return tuple(command_of(tuple(piece)) for piece in pieces if piece and piece[0][:1] != HOLE)
