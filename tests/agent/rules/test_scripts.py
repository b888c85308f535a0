"""Scripts of sed and awk, changed at random: those that are taken to only print do nothing else."""

import random
import shlex
import shutil
from collections.abc import Callable
from typing import NamedTuple

import pytest

from batten.agent.rules import awk_programs, sed_scripts
from tests.agent.rules.effects import Tree, needs_bwrap

pytestmark = [pytest.mark.attack, needs_bwrap]


class Language(NamedTuple):
    program: str
    only_prints: Callable[[str], bool]
    seeds: tuple[str, ...]
    """Scripts that only print; what would act stands in a text or an expression."""
    acts: tuple[str, ...]
    """Scripts that do more."""
    pieces: tuple[str, ...]


def _pieces(text: str, *more: str) -> tuple[str, ...]:
    return (*text.split(), *more)


SED = Language(
    "sed",
    sed_scripts.only_prints,
    seeds=(
        *("s/a/b/", "s/[/]/e/;p", "1{p;q}", "a foo", "s,[^,],w out,", "y/e/w/", "/e ./p"),
        *("s/one/.\\/evil.sh/", "s,one two three,./evil.sh,", "s,x,;e ./evil.sh,", "s|;w out|x|"),
        *("a e ./evil.sh", "/[/]w out/p", "s/a/b/;# w out", "i\\\nw out", ":a;s/x;e ./y/"),
    ),
    acts=(
        *("s,a,\\,;s,one.*,./evil.sh,e#,x,", "1e ./evil.sh", "w out", "s/a/b/w out", "a x\nw out"),
        *("s/[/]/;/;w out", "y,a,b,;w out", "}", "s/\\/;w out", "1!{w out\n}"),
    ),
    pieces=_pieces(
        "/ / , | \\ \\ [ ] [^ [[:alpha:]] ^ ; ; { } p d 1 $ 2,3 ! b t : # a o e w s y one foo g I "
        "m q l N x & \\1 \\( \\) \\n = ~ + 0, -e * . \\[ \\] \\/ s/a/b/ s/a/b/e s,one.*,./evil.sh, "
        "y/ab/cd/ /foo/ \\,a, z F {p} $!N ba",
        *("\n", "\\\n", " ", "a ", "i\\\n", "e ./evil.sh", "w out", "s/x/y/w out"),
    ),
)
AWK = Language(
    "awk",
    awk_programs.only_prints,
    seeds=(
        *("{print $1}", '/a/ {print "> out"}', "{x=1/2; print x}", '{ if (x > 1) print "a" }'),
        *('{print /"out"/}', "{n=split($0,a,/>/)}", '{print "system(1)"} # print > "out"'),
        *('/print > "out"/', '{ if (/"/) x = " > out"; print }', 'x > "out" { print }'),
    ),
    acts=(
        *('{print > "out"}', '{print | "./evil.sh"}', 'BEGIN { system("./evil.sh") }'),
        *('{ print $1,\n $2 > "out" }', '{ print /"/ > "out" }', '# "\n{ print > "out" }'),
    ),
    pieces=_pieces(
        'print > > > "out" | " " / / / \\ \\" \\/ [ ] [/] { } {print} ( ) if(1) else ; , $1 $ x '
        'a[1] 1 + ++ -- ! ~ = ? : && || BEGIN END NR length "a" /b/ /"/ "/" next getline * % @ |& '
        "print$1; x=1; while(0) do",
        *("\n", " ", "in ", "2 ", "# ", '# "', '> "out"', '| "./evil.sh"', 'system("./evil.sh")'),
    ),
)


def _changed(chance: random.Random, language: Language, script: str) -> str:
    for _ in range(chance.randint(1, 3)):
        at = chance.randint(0, len(script))
        piece = "" if chance.random() < 0.3 else chance.choice(language.pieces)
        script = script[:at] + piece + script[at + chance.randint(0, 1) :]
    return script[:120]


def _proven(language: Language, seed: int, count: int) -> list[str]:
    chance = random.Random(seed)
    found = list(language.seeds)
    while len(found) < count:
        script = _changed(chance, language, chance.choice(found))
        if not script.startswith("-") and script not in found and language.only_prints(script):
            found.append(script)
    return found


@pytest.mark.parametrize("language", [SED, AWK], ids=["sed", "awk"])
@pytest.mark.parametrize("count", [120, pytest.param(3000, marks=pytest.mark.soak)])
def test_a_script_that_is_taken_to_only_print_does(
    tmp_path_factory: pytest.TempPathFactory, language: Language, count: int
) -> None:
    if shutil.which(language.program) is None:
        pytest.skip(f"{language.program} is not installed")
    assert all(map(language.only_prints, language.seeds))
    assert not any(map(language.only_prints, language.acts))
    scripts = _proven(language, seed=7, count=count)
    lines = [f"{language.program} {shlex.quote(script)} f g" for script in scripts]
    effects = Tree(tmp_path_factory.mktemp("scripts")).effects(lines)
    wrong = [line for line, effect in zip(lines, effects, strict=True) if effect.acted]
    assert not wrong, "\n".join(wrong)
