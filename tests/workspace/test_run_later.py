"""What other programs execute or believe later: commands read it, or are named."""

import json
import os
import shutil
import string
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from batten.workspace.changes import ChangeRecord, Interval, clock_ns
from batten.workspace.root import Root
from batten.workspace.run_later import TABLE, executed_by, found_in
from batten.workspace.sandbox import Mode
from tests.docs.pages import ROOT
from tests.strangers import ORDINARY, module_as, readable_python
from tests.workspace.deferred import ATTEMPTS
from tests.workspace.keepers import BWRAP, CONFINED, keeper_at, run

pytestmark = pytest.mark.attack


@pytest.fixture
def place() -> Iterator[Path]:
    """Where an ordinary user can work, and a home in /tmp would hide nothing."""
    path = Path(tempfile.mkdtemp(prefix="batten-test-", dir="/var/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize("user", ["root", "ordinary"])
@pytest.mark.parametrize("mode", CONFINED)
def test_no_command_leaves_unnoticed_what_others_execute(
    place: Path, mode: Mode, user: str
) -> None:
    """In bubblewrap nothing that was there changes; each change in Landlock, and what is new in
    both, is named; and git goes on working.
    """
    python, user_id = sys.executable, None
    if os.geteuid() == 0 and user == "ordinary":
        if (found := readable_python()) is None:
            pytest.skip("no interpreter that another user may execute")
        python, user_id = found, ORDINARY
        os.chown(place, ORDINARY, ORDINARY)
    elif os.geteuid() != 0 and user == "root":
        pytest.skip("we are not root")
    done = module_as(user_id, python, "tests.workspace.deferred", mode, str(place))
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert (told["layer"], told["failed"], told["unnamed"]) == (mode, {}, {})
    if mode == "bwrap":
        assert told["changed"] == {}
    else:
        assert len(told["changed"]) > len(ATTEMPTS) * 2 // 3


def made(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("made\n")
    return root


@pytest.mark.parametrize("mode", [BWRAP])
@pytest.mark.parametrize(
    ("rule", "opened", "closed"),
    [
        (".vscode/**", [".vscode/tasks.json", ".vscode/new"], [".envrc"]),
        (".vscode/tasks.json", [".vscode/tasks.json"], [".vscode/launch.json"]),
        ("**/.envrc", [".envrc", "sub/.envrc"], [".vscode/tasks.json"]),
        ("none/.envrc", [], [".envrc", "sub/.envrc", ".vscode/tasks.json"]),
    ],
)
async def test_a_rule_opens_what_it_names_and_nothing_beside_it(
    place: Path, mode: Mode, rule: str, opened: list[str], closed: list[str]
) -> None:
    made(place, ".vscode/tasks.json", ".vscode/launch.json", ".envrc", "sub/.envrc")
    async with keeper_at(place, mode, editable=(f"{place}/{rule}",)) as keeper:
        for name in opened:
            assert (await run(keeper, f"echo x > {name}.n; mv {name}.n {name}")).exit.success, name
        for name in closed:
            assert not (await run(keeper, f"echo x >> {name}")).exit.success, name


@pytest.mark.parametrize("mode", [BWRAP])
async def test_nothing_is_left_behind_for_what_is_not_there(place: Path, mode: Mode) -> None:
    async with keeper_at(place, mode) as keeper:
        assert (await run(keeper, "git init -q --template=")).exit.success
    before = sorted(place.rglob("*"))
    async with keeper_at(place, mode) as keeper:
        assert (await run(keeper, "true")).exit.success
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize("mode", [BWRAP])
async def test_what_stands_in_the_place_of_a_file_does_not_weaken_the_sandbox(
    place: Path, mode: Mode
) -> None:
    """A link, a pipe, a loop or a name without its target must not stop bubblewrap's start."""
    (place / "aside").mkdir()
    (place / "aside" / "hook").write_text("")
    os.mkfifo(place / ".envrc")
    (place / ".git").symlink_to("aside")
    (place / ".vscode").symlink_to(".vscode")
    (place / ".idea").symlink_to("/etc")
    (place / ".zed").symlink_to("missing")
    made(place, "sub/.git/config", "sub/.git/hooks")
    (place / ".husky").symlink_to("aside")
    async with keeper_at(place, mode) as keeper:
        assert (await keeper.ready()).layer == "bwrap"
        assert not (await run(keeper, "echo x > aside/new")).exit.success
        assert (await run(keeper, "echo x > sub/new")).exit.success


def test_a_workspace_full_of_hooks_hides_no_change(place: Path) -> None:
    made(place, "sub/file", "hook", ".git/HEAD")
    (place / ".git/config").write_text("[core]\n\thooksPath = .\n")
    record = ChangeRecord(Root(str(place)))
    record.prepare()
    began = clock_ns()
    for name in ("sub/file", "hook"):
        (place / name).write_text("changed")
    found = record.changes_of([Interval(began, clock_ns())])
    assert found is not None
    told = {one.path: one.executed_by for one in found[0].files}
    assert told == {"sub/file": "", "hook": "git"}


@pytest.mark.parametrize("mode", CONFINED)
async def test_the_git_folder_of_a_worktree_is_read_or_named(place: Path, mode: Mode) -> None:
    main, tree = place / "main", place / "tree"
    who = "-c user.name=n -c user.email=e@x"
    async with keeper_at(place, "none") as keeper:
        made_it = await run(
            keeper,
            f"git init -q main; cd main; git {who} commit -qm 0 --allow-empty; "
            "git worktree add -q ../tree",
        )
    assert made_it.exit.success, made_it.stderr
    own = main / ".git/worktrees/tree"
    shared = [str(main / ".git" / name) for name in ("objects", "refs", "logs")]
    record = ChangeRecord(Root(str(tree)))
    record.prepare()
    began = clock_ns()
    async with keeper_at(tree, mode, writable=(str(own), *shared)) as keeper:
        line = f"echo x > f; git add f; git {who} commit -qm 1; echo evil > {own}/commondir"
        done = await run(keeper, line)
    found = record.changes_of([Interval(began, clock_ns())])
    assert found is not None
    named = {one.path for one in found[0].files if one.executed_by}
    if mode == "bwrap":
        assert ("Read-only file system" in done.stderr, named) == (True, set())
        assert (own / "logs/HEAD").read_text().endswith("commit: 1\n")
    else:
        assert named == {f"{own}/commondir"}


@pytest.mark.parametrize("mode", [BWRAP])
async def test_no_name_of_a_folder_keeps_the_sandbox_from_starting(place: Path, mode: Mode) -> None:
    names = (b"a b", b"a\nb", b"\xff", b"a\\040b", b"--bind", b"[x]*", b"\"q'", "ü".encode())
    for name in names:
        folder = os.path.join(os.fsencode(place), name)
        os.makedirs(folder + b"/.vscode")
        with open(folder + b"/.envrc", "w"):
            pass
    made(place, f"{'deep/' * 100}.envrc", *(f"wide/{number}/.envrc" for number in range(100)))
    async with keeper_at(place, mode) as keeper:
        found = await keeper.ready()
        await run(
            keeper, 'shopt -s nullglob; for x in */.envrc; do echo x >> "$x"; done 2> /dev/null'
        )
    assert found.layer == "bwrap"
    assert msgspec.json.decode(msgspec.json.encode(found))["read_only"]
    assert {path.read_text() for path in place.glob("*/.envrc")} == {""}


def test_a_large_workspace_is_looked_at_from_its_top(place: Path) -> None:
    made(place, *(f"many/{number}" for number in range(2000)), ".envrc", ".git/hooks/x")
    assert set(found_in([str(place)])) == {f"{place}/.envrc", f"{place}/.git/hooks"}
    made(place, *(f"{number}" for number in range(2000)), ".cargo/config.toml")
    made(place / "many", ".envrc")
    assert set(found_in([str(place), str(place / "many")])) == {
        *(f"{place}/{name}" for name in (".envrc", ".git/hooks", ".cargo/config.toml")),
        f"{place}/many/.envrc",
    }


def test_a_workspace_in_a_folder_of_an_agent_is_a_workspace(place: Path) -> None:
    root = made(place / ".claude", "src/main.py", "settings.json").resolve()
    assert found_in([str(root)]) == []


@pytest.mark.parametrize(
    ("path", "program"),
    [
        ("a/.git/hooks/pre-commit", "git"),
        (".GIT/config", "git"),
        ("x/.vscode/tasks.json", "the editor"),
        ("demo.code-workspace", "the editor"),
        ("crate/.cargo/config.toml", "cargo"),
        ("crate/cargo/config.toml", ""),
        (".config/mise/config.toml", "mise"),
        ("x/.hg/hgrc", "git"),
        (".github/workflows/ci.yml", ""),
        ("src/config", ""),
        (".gitignore", ""),
    ],
)
def test_each_file_has_the_program_that_executes_it(path: str, program: str) -> None:
    assert executed_by(path) == program


def test_the_page_on_security_has_the_table() -> None:
    rows: dict[str, list[str]] = {}
    for program, names in TABLE.items():
        shown = [f"`{name}{program[-1:].strip(string.ascii_letters)}`" for name in names.split()]
        rows.setdefault(program.rstrip("/"), []).extend(shown)
    lines = [f"| {program} | {', '.join(names)} |" for program, names in rows.items()]
    page = (ROOT / "docs" / "security.md").read_text()
    told = page.partition("<!-- run-later -->\n")[2].partition("<!-- /run-later -->")[0]
    assert told.splitlines() == ["| by | files |", "|---|---|", *lines]
