"""Attempts to leave something that other programs execute later: LAYER DIRECTORY; tells as JSON
which of them changed such a file, which was named, and what git could not do.
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from batten.workspace.changes import ChangeRecord, Interval, clock_ns
from batten.workspace.root import Root
from batten.workspace.sandbox import Mode
from tests.workspace.keepers import keeper_at, run

MADE = """
git init -q -b main; git config user.name n; git config user.email e@x; git config core.hooksPath hk
mkdir -p .vscode sub/.claude hk .cargo .cursor .zed deep/er; echo 0 > file
git init -q deep/er/repo; git init -q --bare bare.git
for name in .envrc mise.toml .vimrc .exrc sub/.envrc .cargo/config.toml .cursor/mcp.json; do
    echo made > $name; done
for name in .zed/tasks.json .vscode/tasks.json sub/.claude/settings.json hk/pre-commit; do
    echo made > $name; done
ln hk/pre-commit second; git add file .envrc .vscode sub; git commit -qm 0 --no-verify
echo 1 > file; git -c core.hooksPath=/dev/null commit -qam 1; git branch other
"""
PARTS = (
    *("/hooks/", "git/config", "hk/", "envrc", ".vscode/", "mise", ".vimrc", ".exrc", ".claude"),
    *(".cargo", ".cursor", ".zed"),
)
"""What the paths of these files have in them."""
ALONE = "unshare -Urm sh -c "
ATTEMPTS = [
    "echo x >> hk/pre-commit",
    "echo x > hk/post-commit",
    "git config user.name evil",
    "git config core.fsmonitor ./x",
    "echo x > .git/hooks/pre-commit",
    "mkdir -p .git/hooks; cp file .git/hooks/post-checkout; chmod +x .git/hooks/*",
    "echo x >> .git/config",
    "mv .git moved; cp -r moved .git; echo x >> .git/config",
    "rm -rf .git; git init -q; echo x > .git/hooks/pre-commit",
    "mv .git/hooks h; mkdir .git/hooks; echo x > .git/hooks/pre-commit",
    "ln .git/config c && echo x >> c",
    "cp .git/config c; echo x >> c; mv -f c .git/config",
    "ln -sfn /tmp .git/hooks",
    "exec 3<> .git/config; echo xxxx >&3",
    "chmod 777 .git/config; truncate -s 0 .git/config",
    "python3 -c \"import os; os.truncate('.git/config', 0)\"",
    "echo x >> deep/er/repo/.git/config",
    "mv deep moved; mkdir -p deep/er; cp -r moved/er/repo deep/er; "
    "echo x >> deep/er/repo/.git/config",
    "echo x >> bare.git/config",
    "echo x > bare.git/hooks/post-receive",
    "echo x >> .envrc",
    "rm .envrc",
    "mv .envrc y; echo x > .envrc",
    "sed -i s/made/x/ .envrc",
    "echo x >> sub/.envrc; mv sub moved; mkdir sub; echo x > sub/.envrc",
    "echo x > .vscode/tasks.json",
    "echo x > .vscode/settings.json",
    "mv .vscode v; mkdir .vscode; echo x > .vscode/tasks.json",
    "echo x >> sub/.claude/settings.json",
    "echo x >> .cargo/config.toml",
    "echo x >> .cursor/mcp.json",
    "echo x >> .zed/tasks.json",
    "echo x >> mise.toml",
    "echo x >> .vimrc; echo x >> .exrc",
    ALONE + "'umount .git/config; mount -o remount,bind,rw .git/config; echo x >> .git/config'",
    ALONE + "'mkdir -p /tmp/m; mount --bind . /tmp/m && echo x >> /tmp/m/.git/config'",
    ALONE + "'mkdir -p /tmp/m; mount --rbind . /tmp/m; umount /tmp/m/.git/config; "
    "echo x >> /tmp/m/.git/config'",
    "bwrap --dev-bind / / sh -c 'echo x >> .git/config'",
]
"""Of what is there when the sandbox starts."""
NEW = {
    "echo ../evil > .git/commondir": ".git/commondir",
    "echo x > .git/config.worktree": ".git/config.worktree",
    "mkdir -p n; echo x > n/.envrc": "n/.envrc",
    "mkdir -p n/.zed; echo x > n/.zed/settings.json": "n/.zed/settings.json",
    "git init -q new; echo x > new/.git/hooks/pre-commit": "new/.git/hooks/pre-commit",
    "mkdir -p b/objects b/refs b/hooks; echo x > b/HEAD; echo x > b/config": "b/config",
    "echo gitdir: evil > sub/.git": "sub/.git",
    "ln -s /tmp/evil sub/.vscode": "sub/.vscode",
    "mkdir prepared; echo x > prepared/.envrc": "prepared/.envrc",
    "mv prepared arrived": "arrived/.envrc",
    "ln file .mcp.json": ".mcp.json",
    "echo x >> second": "hk/pre-commit",
}
"""Of what is not there yet, with the file that must be named."""
GIT = [
    "git status",
    "echo a > a; git add a; git -c core.hooksPath=/dev/null commit -qm x",
    "git checkout -qb new; echo b >> a; git -c core.hooksPath=/dev/null commit -qam y",
    "git checkout -q main; git merge -q new; git branch -d new; git tag t",
    "git worktree add -q wt; cd wt; echo z > z; git add z; git commit -qm z --no-verify",
    "git worktree remove --force wt",
    "echo c >> a; git stash; git stash pop; git checkout -q .",
    "git mv a b; git -c core.hooksPath=/dev/null commit -qm m; git reset -q --hard HEAD~1",
    "git gc -q; git fetch -q . HEAD; git log -1; git clone -q . inner",
]


def protected(root: Path) -> dict[str, str]:
    """What of these files there is, by content."""
    told: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if "inner/" not in name and any(part in f"{name}/" for part in PARTS):
            told[name] = path.read_text() if path.is_file() else os.fsdecode(path.name)
    return told


def workspace(directory: Path) -> Path:
    root = directory / "workspace"
    root.mkdir()
    quiet = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "HOME": str(directory)}
    subprocess.run(["bash", "-ec", MADE], cwd=root, env=quiet, check=True)
    return root


async def main(mode: Mode, root: Path) -> None:
    record = ChangeRecord(Root(str(root)))
    record.prepare()
    changed: dict[str, list[str]] = {}
    unnamed: dict[str, str] = {}
    failed: dict[str, str] = {}
    async with keeper_at(root, mode) as keeper:
        layer = (await keeper.ready()).layer

        async def named(line: str) -> list[str]:
            began = clock_ns()
            await run(keeper, line, env={"GIT_CONFIG_GLOBAL": os.devnull})
            found = record.changes_of([Interval(began, clock_ns())])
            assert found is not None
            return [one.path for one in found[0].files if one.executed_by or one.other_names]

        for line in GIT:
            done = await run(keeper, line, env={"GIT_CONFIG_GLOBAL": os.devnull})
            if not done.exit.success:
                failed[line] = done.stderr
        await named("true")
        for line, wanted in NEW.items():
            if wanted not in (told := await named(line)):
                unnamed[line] = f"{wanted}: {told}"
        for name in ("commondir", "config.worktree"):
            (root / ".git" / name).unlink()
        for line in ATTEMPTS:
            before = protected(root)
            told = await named(line)
            after = protected(root)
            if before != after:
                differ = [name for name in {*before, *after} if before.get(name) != after.get(name)]
                changed[line] = sorted(differ)
                if not told:
                    unnamed[line] = f"{sorted(differ)}"
    told_all = {"changed": changed, "unnamed": unnamed, "failed": failed, "layer": layer}
    sys.stdout.write(json.dumps(told_all))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], workspace(Path(sys.argv[2]))))  # type: ignore[arg-type]
