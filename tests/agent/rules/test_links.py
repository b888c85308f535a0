"""Command lines in a tree with links that lead outside, held against what a real bash shows.

The tree has a key outside of the workspace and a secret inside of it that a rule denies. A line
that is allowed unasked must show neither; each attack is run too, to see that it would.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from batten.agent.rules.rule import parse_rule
from batten.agent.rules.tree import Tree, Unseen
from batten.agent.rules.verdict import decide
from tests.agent.rules.tools import shell

pytestmark = pytest.mark.attack

KEY, SECRET = "the-key-of-the-user", "the-secret-of-the-project"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace beside the user's home."""
    home, place = tmp_path / "home", tmp_path / "place"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_rsa").write_text(f"{KEY}\n")
    (home / ".ssh" / "id_rsa.pub").touch()
    (home / "keys").mkdir()
    (home / "keys" / "main").write_text(f"{KEY}\n")
    for name in ("docs/deep/er", "src", "secrets", "empty", ".git"):
        (place / name).mkdir(parents=True)
    (place / "docs/a.txt").write_text("text\n")
    (place / "docs/deep/b.txt").write_text("text\n")
    (place / "src/a.py").write_text("text = 1\n")
    (place / "secrets/key").write_text(f"{SECRET}\n")
    (place / "docs/refs").symlink_to(home / ".ssh")
    (place / "docs/deep/er/refs").symlink_to("../../../../home/.ssh")
    (place / "docs/id").symlink_to(home / ".ssh/id_rsa")
    (place / "docs/hidden").symlink_to("../secrets")
    (place / "src/inner").symlink_to("../docs/deep")
    (place / "src/out").symlink_to(home)
    monkeypatch.setenv("HOME", str(home))
    return place


def verdict(line: str, place: Path, *rules: str) -> str:
    parsed = [parse_rule("deny" if rule.startswith("!") else "allow", rule.lstrip("!"))
              for rule in rules]  # fmt: skip
    return decide(shell(line), {}, rules=parsed, mode="default", workspace=str(place)).verdict


def shown(line: str, place: Path) -> str:
    """All that a real bash prints for a line; what it makes is removed again."""
    before = {path for path in place.rglob("*") if not path.is_symlink()}
    ended = subprocess.run(
        ["/bin/bash", "-c", line],
        cwd=place,
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=10,
        check=False,
    )
    for path in sorted(set(place.glob("new*")) - before):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return (ended.stdout + ended.stderr).decode(errors="replace")


ATTACKS = [
    "cat docs/r*/id_rsa",
    "cat docs/*/id_rsa",
    "cat docs/re?s/id_rsa",
    "cat docs/[r]efs/id_rsa",
    "cat docs/{refs,x}/id_rsa",
    "cat docs/{r,d}*/id_rsa",
    "cat docs/i?",
    "cat */id",
    "cat ./*/refs/*",
    "cat src/inner/*/*/id_rsa",
    "cat docs/deep/../r*/id_rsa",
    "head -n 5 docs/*/id_rsa",
    "sed -n 1p docs/*/id_rsa",
    "awk '{print $1}' docs/*/id_rsa",
    "sort docs/*/id_rsa | uniq",
    "grep '' docs/*/id_rsa",
    "cut -c1-40 docs/*/id_rsa",
    "paste docs/*/id_rsa",
    "strings docs/*/id_rsa",
    "diff src/a.py docs/r*/id_rsa",
    "grep -R . docs",
    "grep -Rn . docs",
    "grep -nR .",
    "grep --dereference-recursive . docs",
    "grep --deref . docs",
    "grep -r . docs/*",
    "grep -R . src",
    "diff -rN docs empty",
    "diff -r docs empty -N",
    "diff -N docs empty",
    "diff --recursive --new-file docs empty",
    "find -L docs -name id_rsa -exec cat {} +",
    "find docs -follow -name id_rsa -exec cat {} \\;",
    "find docs -name id -exec cat {} +",
    "find docs -exec cat {} +",
    "find . ! -type f -exec cat {} +",
    "find docs -type l -exec cat {} +",
    "find docs -type f -o -type l -exec cat {} +",
    "find docs/*/ -exec cat {} +",
    "find . -execdir cat {} \\;",
    "for f in docs/*/*; do cat \"$f\"; done",
    "for d in docs/*; do cat $d/id_rsa; done",
    "cd docs && cat r*/id_rsa",
    "cd docs/deep && cat er/*/id_rsa",
    "cd docs/deep/er && cat ../../r*/id_rsa",
    "cat < docs/refs/id_rsa",
    "echo \"$(cat docs/r*/id_rsa)\"",
    "echo \"$(< docs/refs/id_rsa)\"",
    "[[ $(cat docs/r*/id_rsa) == x ]] || cat docs/r*/id_rsa",
    "cat ~+/../home/.ssh/id_rsa",
    "cd ~+/.. && cat home/.ssh/id_rsa",
    "cat ~/.ssh/id_rsa",
    "cd docs && cd src; cat ~-/docs/id",
    "pushd docs; pushd ../src; cat ~1/id",
    "pushd docs; cat ~0/id",
    "pushd docs; cat ~+0/id",
    "cat {~,x}+/docs/id",
    "cat < ~+/docs/id",
    "x=~+/docs/id; cat $x",
    "cat $PWD/docs/id",
    "cd docs; cd ..; cat $OLDPWD/id",
    "cat \"$HOME\"/.ssh/id_rsa",
    "HOME=docs; cat ~/id",
    "for f in ~+/docs/id; do cat $f; done",
    "CDPATH=docs; cd deep; cat ../id",
    "rg -L . docs",
    "rg --follow . docs",
    "rg . docs/*",
]  # fmt: skip
"""Each shows the key; none may be allowed."""

NAMED = [
    "ls docs/*",
    "ls -LR docs",
    "ls -RL",
    "find -L docs",
    "find docs -follow",
    "du -aL docs",
    "du -a --dereference docs",
    "tree -l docs",
    "ls docs/r*/",
]
"""Each shows the name of the key."""

MAKERS = [
    "ln -s ~/keys new; cat new/main",
    "cat new/main; ln -s ~/keys new; cat new/main",
    "ln -s ../home/keys new && grep -r . new/",
    "ln -s ~/keys/main new; cat < new",
    "for i in 1 2; do cat new/main; ln -s ~/keys new; done",
    "ln -s ~/keys/main new | cat; cat new",
    "cp -a docs new; cat new/refs/id_rsa",
    "cp -P docs/id new; cat new",
    "env ln -s ~/keys new; cat new/main",
    "mv docs/id new; cat new; mv new docs/id",
    "tar cf - docs | tar xf - -C empty; cat empty/docs/id; rm -r empty/docs",
    "ln -s ~/keys new; cd new; cat main",
]
"""A command of the line makes the link, and a rule allows it to."""

ORDINARY = [
    "cat docs/*.txt",
    "cat docs/d*/*.txt",
    "cat src/*.py | head -3",
    "cat {docs,src}/a.*",
    "ls docs src",
    "ls -la src/*.py",
    "ls -R docs",
    "grep -rn text .",
    "grep -r text docs src --include='*.py'",
    "grep -R text docs/deep/b.txt",
    "find . -name '*.py'",
    "find . -type f -exec grep -l text {} +",
    "find . -type f -not -path './empty/*' -exec wc -l {} +",
    "find src/inner/ -maxdepth 1 -name '*.txt' -exec cat {} +; true",
    "find empty -exec cat {} +",
    "find . -name '*.txt' -exec cat {} +",
    "diff docs/a.txt docs/deep/b.txt",
    "wc -l docs/*.txt src/*.py",
    "cat src/inner/b.txt src/inn*/b.txt",
    "head src/*/b.txt",
    "cd docs && cat *.txt",
    "du -sh docs",
    "test -f docs/a.txt && echo yes",
]  # fmt: skip


@pytest.mark.parametrize("line", ATTACKS)
def test_a_link_behind_a_wildcard_or_a_search_is_asked_about(line: str, place: Path) -> None:
    if shutil.which(line.split()[0]) or line.split()[0] not in ("rg", "tree"):
        assert KEY in shown(line, place)
    assert verdict(line, place, "bash(make *)") == "ask"


@pytest.mark.parametrize("line", NAMED)
def test_a_list_of_what_is_behind_a_link_is_asked_about(line: str, place: Path) -> None:
    if shutil.which(line.split()[0]):
        assert "id_rsa" in shown(line, place)
    assert verdict(line, place, "bash(make *)") == "ask"


@pytest.mark.parametrize("line", MAKERS)
def test_nothing_is_read_unasked_beside_a_command_that_makes_links(line: str, place: Path) -> None:
    assert KEY in shown(line, place)
    makers = ("ln", "cp", "mv", "tar", "env", "rm")
    rules = [f"bash({name} *)" for name in makers]
    assert verdict(line, place, *rules) == "ask"
    assert verdict("ln -s a new; echo made; pwd", place, *rules) == "allow"
    assert verdict("cp a new; cat docs/a.txt", place, *rules) == "allow"


@pytest.mark.parametrize("line", ORDINARY)
def test_what_leads_nowhere_else_is_allowed(line: str, place: Path) -> None:
    assert verdict(line, place, "bash(make *)") == "allow", line
    assert KEY not in shown(line, place)


READERS = (
    *("cat {}", "head {}", "grep -r e {}", "grep -R e {}", "find {} -exec cat {{}} +", "ls -R {}"),
    *("find -L {} -type f -exec cat {{}} +", "diff -rN {} empty", "ls -LR {}", "cat < {}"),
    *("sed -n p {}", "cd {} && cat i* r*/i*", "du -aL {}"),
)
PATHS = (
    *("docs", "docs/*", "docs/r*", "docs/refs", "docs/refs/", "docs/refs/id_rsa", "d*/r*/i*", "*"),
    *("*/*", "docs/i*", "src/out/.ssh/*", "src/o*/.s*/id_rsa", "src/inner", "src/inner/*"),
    *("src/in*", "src/inner/er/refs", "~+", "~+/docs/id", "~-", "~/.ssh/*", "docs/{id,a.txt}"),
    *("docs/../docs/id", "src/inner/../id", "src/inner/../*", "s*/inner/../id", "docs/?d"),
    *("docs/deep/er/../../id", "docs/[!a]*", "./d*/id", "docs//id", "$PWD/docs/id", "empty"),
)


@pytest.mark.parametrize("reader", READERS)
def test_what_is_allowed_shows_nothing_outside(reader: str, place: Path) -> None:
    allowed = [
        line
        for line in (reader.format(path) for path in PATHS)
        if verdict(line, place, "bash(make *)") == "allow"
    ]
    for line in allowed:
        text = shown(line, place)
        assert KEY not in text, line
        assert "id_rsa" not in text, line
    assert allowed or "-L" in reader or "cd" in reader


HIDDEN = [
    "cat docs/h*/key",
    "cat s*/key",
    "cat se?rets/key",
    "python3 -c 'print(open(\"x\")).read()' || cat */key",
    "cat docs/hidden/key",
    "cat docs/{hidden,x}/key",
    "tac {secrets,x}/key",
    "/bin/cat $PWD/secrets/key",
    "cat ~+/secrets/key",
    "rev ~+/secrets/key | rev",
    "dd if=~+/secrets/key",
    "busybox cat ~+/secrets/key || cat ~+/secrets/key",
    "bash -c 'cat ~+/secrets/key'",
    "cd docs && cat ../secrets/key",
    "cd docs; cd deep; cat ../../secrets/key",
    "cd docs/deep && cat ../h*/key",
    "HOME=$PWD; cat ~/secrets/key",
    "export HOME=$PWD; cat ~/secrets/key",
    "HOME=$PWD bash -c 'cat ~/secrets/key'",
    "F=secrets/key; perl -pe '' $F",
    "for f in secrets/key; do perl -pe '' $f; done",
    "for f in ~+/secrets/key; do perl -pe '' $f; done",
    "CDPATH=secrets/..; cd secrets; perl -pe '' key",
    "grep -R . docs",
    "diff -rN docs empty",
    "find -L docs -type f -exec cat {} +",
    "cp -rL docs new; perl -pe '' new/hidden/key",
    "cp -r . ../copy; cat ../copy/secrets/key; rm -r ../copy",
    "tar ch docs | strings",
    "tar c . | strings",
    "ln -s . new; perl -pe '' new/secrets/key",
    "ln -s ../place new; cat new/secrets/key",
    "cat < ~+/secrets/key",
    "cat < s*/key",
    "perl -pe '' $PWD/secrets/key",
]


@pytest.mark.parametrize("line", HIDDEN)
def test_no_link_tilde_or_wildcard_leads_past_a_rule_that_denies(line: str, place: Path) -> None:
    assert SECRET in shown(line, place)
    for rule in ("!Read(./secrets/**)", "!Read(secrets)", "!Read(secrets/key)"):
        assert verdict(line, place, "bash", rule) != "allow", rule


@pytest.mark.parametrize(
    "line",
    ["make", "cat docs/*.txt", "cp -r src new", "tar czf new.tgz src", "ln -s ../lib new; make",
     "python3 x.py ~/y", "cd docs && cat a.txt ../src/a.py", "perl -pe '' $F", "echo ~+",
     "for f in docs/*.txt; do perl -pe '' $f; done", "HOME=/tmp make", "git checkout x && make",
     "mkdir -p new/{a,b}", "rsync -a docs/deep/ new"],
)  # fmt: skip
def test_a_rule_that_denies_leaves_other_files_alone(line: str, place: Path) -> None:
    (place / "src/out").unlink()
    assert verdict(line, place, "bash", "!Read(./secrets/**)") == "allow"


WRITES = [
    *("echo x > src/out/f", "echo x > src/o*/f", "echo x > ~+/f", "echo x > src/inner/f"),
    *("cd src && echo x > out/f", "ln -s ~ src/new; echo x > src/new/f", "echo x > ~-/f"),
    *("echo x > src/../f", "cd src/inner && echo x > ../f", "echo x >> src/{out,a}/f"),
]


@pytest.mark.parametrize("line", WRITES)
def test_a_link_leads_no_write_past_the_folder_that_a_rule_allows(line: str, place: Path) -> None:
    rules = ("bash(ln *)", "Edit(./src/**)")
    assert verdict(line, place, *rules) == "ask"
    assert verdict("echo x > src/f", place, *rules) == "allow"


@pytest.mark.parametrize(
    "line",
    ["echo x > docs/hidden/f", "cp a docs/h*/f", "rm -r s*", "tee ~+/secrets/f", "rm docs/*/key"],
)
def test_a_link_leads_no_write_past_a_rule_that_denies(line: str, place: Path) -> None:
    assert verdict(line, place, "bash", "!Edit(./secrets/**)") != "allow"
    assert verdict("cp a docs/d*/f", place, "bash", "!Edit(./secrets/**)") == "allow"


def test_more_than_a_look_takes_in_is_not_taken_for_nothing(place: Path) -> None:
    for number in range(20):
        (place / f"src/{number}.txt").touch()
    with pytest.raises(Unseen):
        Tree(most=10).named(f"{place}/src/\x01.txt")
    with pytest.raises(Unseen):
        list(Tree(most=10).links(str(place / "src"), follow=False))


def test_links_in_a_circle_are_followed_once(place: Path) -> None:
    (place / "empty/loop").symlink_to("..")
    (place / "empty/self").symlink_to("self")
    found = list(Tree().links(str(place / "empty"), follow=True))
    assert len(found) == len(set(found))
    assert f"{place}/docs/id" in found
