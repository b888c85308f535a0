"""What command lines do when a real bash runs them: in a throw-away tree, within a sandbox of
bubblewrap, so that nothing else can change.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from batten.workspace.sandbox import find_bwrap

needs_bwrap = pytest.mark.skipif(
    find_bwrap(os.environ["PATH"]) is None, reason="bwrap is not installed"
)
RUNNER = Path(__file__).with_name("line_runner.py")
_CANARY = '#!/bin/sh\necho ran >> "$TREE/ran"\n'
_LONG_AGO = 1_600_000_000


class Effect(msgspec.Struct, frozen=True):
    changed: tuple[str, ...]
    leaked: bool
    showed_hidden: bool

    @property
    def acted(self) -> bool:
        return bool(self.changed) or self.leaked


class Tree:
    """A workspace beside a home with secrets, full of files that programs might obey."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tree"
        self.place = self.root / "place"
        self.home = self.root / "home"
        self._pristine = folder / "pristine"
        _build(self.root)
        shutil.copytree(self.root, self._pristine, symlinks=True)

    def effects(self, lines: Sequence[str]) -> list[Effect]:
        """What each line does, each in this tree as it was built."""
        inside = "/tmp/pristine"
        job = {
            "tree": str(self.root),
            "pristine": inside,
            "path": f"{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin",
            "lines": list(lines),
        }
        ours = {str(RUNNER.parent), sys.prefix, sys.base_prefix}
        ended = subprocess.run(
            [
                *("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
                *("--tmpfs", "/tmp", "--ro-bind", str(self._pristine), inside),
                *(word for path in sorted(ours) for word in ("--ro-bind", path, path)),
                *("--tmpfs", str(self.root), "--unshare-all", "--die-with-parent"),
                *("--chdir", "/", sys.executable, str(RUNNER)),
            ],
            input=json.dumps(job).encode(),
            capture_output=True,
            timeout=300,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr.decode(errors="replace")[-2000:]
        return msgspec.json.decode(ended.stdout, type=list[Effect])


def _build(root: Path) -> None:
    home, place = root / "home", root / "place"
    for folder in (
        home / ".ssh",
        place / "src/sub",
        place / "docs",
        place / "secrets",
        root / "bin",
    ):
        folder.mkdir(parents=True)
    (home / ".ssh/id_rsa").write_text("planted-secret\nline two\n")
    (home / ".ssh/planted_name").touch()
    (home / "notes").write_text("planted-note\nline two\n")
    for name, text in _files().items():
        (place / name).write_text(text)
    (place / "a.bin").write_bytes(bytes(range(64)))
    (place / "docs/refs").symlink_to("../../home/.ssh")
    (place / "docs/id").symlink_to("../../home/.ssh/id_rsa")
    for script in (place / "evil.sh", root / "bin/evil", place / "src/evil.sh"):
        script.write_text(_CANARY)
        script.chmod(0o755)
    _commit(place)


def _files() -> dict[str, str]:
    outside = "../home/notes"
    return {
        "f": "one two three\nfoo bar\nb a\nTODO: x\n",
        "g": "two\nfoo baz\nc\n",
        "README.md": "# A project\n\nSome text about foo.\n",
        "data.csv": "name,size\na,1\nb,22\nc,3\n",
        "data.json": '{"a": [{"b": 1}, {"b": 2}], "name": "x", "env": "y"}\n',
        "package.json": '{"name": "x", "scripts": {"test": "true"}}\n',
        "src/a.py": "import os\n\n\ndef foo() -> int:\n    return 1\n",
        "src/b.py": "def bar() -> int:\n    return 2  # TODO\n",
        "src/sub/c.py": "x = 1\n",
        "docs/a.txt": "text about foo\nmore\n",
        "docs/b.txt": "other text\n",
        "secrets/key": "hidden-key\nline two\n",
        "pats": "foo\nbar\n",
        "list0": f"../home/.ssh\0{outside}\0",
        "names": f"{outside}\n",
        "response": f"x {outside}\n",
        "sums": f"d41d8cd98f00b204e9800998ecf8427e  {outside}\n",
        "evil.awk": 'BEGIN { system("./evil.sh") }\n',
        "evil.sed": "1e ./evil.sh\n",
        "evil.jq": '.name | "x"\n',
        "mod.jq": "def x: 1;\n",
        "dump.hex": "00000000: 6162 630a                                abc.\n",
        "magic": "0 string one one\n",
        "version": "#!/bin/sh\n./evil.sh\n",
        "version.js": "require('child_process').execSync('./evil.sh')\n",
        "conftest.py": "import os\nos.system('./evil.sh')\n",
        "Makefile": ".PHONY: all version\nall version:\n\t./evil.sh\n",
        ".gitignore": "ignored\n",
    }


def _commit(place: Path) -> None:
    for folder, _, names in os.walk(place):
        for name in names:
            os.utime(Path(folder, name), (_LONG_AGO, _LONG_AGO), follow_symlinks=False)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(place),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
        "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
    }

    def git(*words: str) -> None:
        settings = ("user.name=a", "user.email=a@b", "init.defaultBranch=main", "gc.auto=0")
        given = [word for setting in settings for word in ("-c", setting)]
        subprocess.run(
            ["git", *given, *words], cwd=place, env=environment, check=True, capture_output=True
        )

    git("init", "-q", "--template=")
    # A copy of the tree is not to look changed.
    for setting in ("core.checkStat=minimal", "core.trustCtime=false"):
        git("config", *setting.split("="))
    git("config", "user.name", "a")
    git("config", "user.email", "a@b")
    git("remote", "add", "origin", "/nowhere")
    git("add", "-A")
    git("commit", "-qm", "First")
    git("tag", "v1")
    git("branch", "other")
    (place / "g").write_text("two\nfoo changed\nc\n")
    git("stash", "-q")
    os.utime(place / "g", (_LONG_AGO, _LONG_AGO))
    (place / "src/b.py").write_text("def bar() -> int:\n    return 3  # TODO\n")
    os.utime(place / "src/b.py", (_LONG_AGO + 60, _LONG_AGO + 60))
    git("commit", "-qam", "Second, about foo")
    git("status")
    (place / "f").write_text("one two three\nfoo bar\nb a\nTODO: x\nnew\n")
    os.utime(place / "f", (_LONG_AGO + 90, _LONG_AGO + 90))
