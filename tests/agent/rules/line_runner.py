"""Runs command lines in a tree and reports what each one did. Started within a sandbox by
`effects.py`, with a tree of its own to damage; uses the standard library alone.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

MARKS = (b"planted", b"root:x:0:0", b"detnalp", b"706c616e746564", b"cGxhbnRlZ")
"""What a line shows of files outside, as it is or in the encodings that programs print."""
HIDDEN = b"hidden-key"
LONGEST_S = 1.0
_SEALED = 2_000_000_000
"""The time of change of what must not be read: beyond it, reading sets the time of access."""


class Job(TypedDict):
    tree: str
    """Empty, and ours."""
    pristine: str
    path: str
    lines: list[str]


class Effect(TypedDict):
    changed: list[str]
    """Names of what differs afterwards."""
    leaked: bool
    """It showed, or at least read, a file outside of the workspace."""
    showed_hidden: bool


class Look:
    """Everything in a tree by its name, but for the times of access.

    A file counts as unchanged as long as the system says so, and is read where it does not.
    """

    def __init__(self, tree: Path) -> None:
        self._tree = str(tree)
        self.states: dict[str, tuple[int, ...]] = {}
        waiting = [self._tree]
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    state = entry.stat(follow_symlinks=False)
                    is_folder = entry.is_dir(follow_symlinks=False)
                    times = () if is_folder else (state.st_size, state.st_mtime_ns)
                    name = entry.path[len(self._tree) + 1 :]
                    self.states[name] = (state.st_mode, *times, 0 if is_folder else state.st_ino)
                    if is_folder:
                        waiting.append(entry.path)

    def differences(self, before: "Look", pristine: Path) -> list[str]:
        names = {*self.states, *before.states}
        suspects = (each for each in names if self.states.get(each) != before.states.get(each))
        return sorted(each for each in suspects if not self._is_same(each, pristine))

    def _is_same(self, name: str, pristine: Path) -> bool:
        ours, theirs = Path(self._tree, name), pristine / name
        is_file = not ours.is_symlink() and ours.is_file() and theirs.is_file()
        if not is_file or ours.stat().st_mode != theirs.stat().st_mode:
            return False
        return ours.read_bytes() == theirs.read_bytes()


class Runner:
    def __init__(self, job: Job) -> None:
        self._tree = Path(job["tree"])
        self._pristine = Path(job["pristine"])
        self._environment = {
            "PATH": f"{self._tree}/bin:{job['path']}",
            "HOME": f"{self._tree}/home",
            "TREE": str(self._tree),
            "LC_ALL": "C.UTF-8",
            "OWN": "planted-variable",
        }
        self._sealed = [
            path.relative_to(self._pristine)
            for path in (self._pristine / "home").rglob("*")
            if path.is_file()
        ]
        self._restore()
        self._seal()
        self._known = Look(self._tree)

    def _restore(self) -> None:
        for left in self._tree.iterdir():
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        shutil.copytree(self._pristine, self._tree, symlinks=True, dirs_exist_ok=True)

    def _mended(self, names: list[str]) -> bool:
        """Whether single files were all that differed, and are as they were."""
        for name in names:
            ours, theirs = self._tree / name, self._pristine / name
            if ours.is_dir() or theirs.is_dir() or not ours.parent.is_dir():
                return False
            ours.unlink(missing_ok=True)
            if os.path.lexists(theirs):
                shutil.copy2(theirs, ours, follow_symlinks=False)
        return True

    def _seal(self) -> None:
        for path in self._sealed:
            os.utime(self._tree / path, (0, _SEALED))

    def run(self, line: str) -> Effect:
        output = self._output(line)
        changed = Look(self._tree).differences(self._known, self._pristine)
        was_read = any(
            (self._tree / path).exists() and os.stat(self._tree / path).st_atime > 0
            for path in self._sealed
        )
        if changed and not self._mended(changed):
            self._restore()
        self._seal()
        self._known = Look(self._tree) if changed else self._known
        leaked = was_read or any(mark in output for mark in MARKS)
        return Effect(changed=changed, leaked=leaked, showed_hidden=HIDDEN in output)

    def _output(self, line: str) -> bytes:
        process = subprocess.Popen(
            ["/bin/bash", "-c", f"ulimit -f 4096 -n 64; {line}"],
            cwd=self._tree / "place",
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.communicate(timeout=LONGEST_S)[0]
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            return process.communicate()[0]


def main() -> None:
    job: Job = json.load(sys.stdin)
    # A process whose environment others can look at.
    neighbour = subprocess.Popen(["sleep", "600"], env={"OTHER": "planted-neighbour"})
    runner = Runner(job)
    json.dump([runner.run(line) for line in job["lines"]], sys.stdout)
    neighbour.kill()
    neighbour.wait()


if __name__ == "__main__":
    main()
