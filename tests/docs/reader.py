"""A reader who runs what a page shows, with a scripted model in the place of keys."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.agent.acting import PIXEL
from tests.agent.stage import Stage, Statement, bash, call, end, say
from tests.cli.invoking import KEYS
from tests.docs.pages import ROOT, Block, transcript
from tests.ports import free_port

PATIENCE_S = 120.0
BIN = Path(sys.executable).parent
PROGRAMS = {
    "my-worker": "batten headless --protocol heddle",
    "my-agent": "batten headless --protocol acp --model openai-chat/any",
    "my-runtime": "batten headless --protocol maestro --model anthropic/any",
}
"""Programs that the pages give to a reader, and what plays their part."""
FILES = {
    "build.log": b"make: *** [all] Error 1\n",
    "screenshot.png": PIXEL,
    **{
        f"examples/{name}": (ROOT / "examples" / name).read_bytes()
        for name in ("see_bus.py", "see_posts.py")
    },
    "tests/greeting.json": (ROOT / "examples" / "greeting.json").read_bytes(),
    **{
        f"panel/{file.name}": file.read_bytes()
        for file in (ROOT / "examples" / "panel").glob("*.json")
    },
}
"""Files that the pages speak of."""
PORTS = ("4222", "4318", "8080")
"""Ports of servers that the pages start; each reader gets free ones."""
ONE_CHECK = {
    "heddle": "heddle.init.answered",
    "maestro": "maestro.hello.answered",
    "acp": "acp.initialize.answered",
}
"""The whole suites run in tests/conformance."""
STARTS = {
    "sh": ["bash", "-exo", "pipefail", "-c"],
    "bash": ["bash", "-exo", "pipefail", "-c"],
    "zsh": ["zsh", "-f", "-c"],
    "fish": ["fish", "--no-config", "-c"],
    "python": [sys.executable, str(Path(__file__).with_name("play.py"))],
}
PRELUDES = {"zsh": "autoload -Uz compinit; compinit -D -u; set -e\n"}
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "tests", "bench", "docs", "schemas")


class Reader:
    """One page, from its top, in a repository to work in and with a home of its own."""

    def __init__(self, directory: Path, *, in_clone: bool) -> None:
        self._stage = stage = Stage(directory)
        self._earlier = 0
        self._ports = {port: str(free_port()) for port in PORTS}
        self.workspace = stage.workspace
        self._model = stage.scenario(*_prompts())
        programs = directory / "bin"
        programs.mkdir()
        for name, command in PROGRAMS.items():
            (programs / name).write_text(f"#!/bin/sh\nexec {command}\n")
            (programs / name).chmod(0o755)
        demo = directory / "demo"
        demo.mkdir()
        (demo / "venv").symlink_to(BIN.parent)
        (demo / "installed").touch()
        self._environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(KEYS)},
            "PATH": os.pathsep.join((str(programs), str(BIN), os.environ["PATH"])),
            "HOME": str(directory),
            "BATTEN_HOME": str(stage.home),
            "BATTEN_MODEL": self._model,
            "DEMO": str(demo),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
        }
        if in_clone:
            shutil.copytree(ROOT, self.workspace, ignore=LEFT_OUT, dirs_exist_ok=True)
        for folder in ("DIR", "repo", "panel", "examples"):
            (self.workspace / folder).mkdir(exist_ok=True)
        (self.workspace / "tests").mkdir()
        for name, body in FILES.items():
            (self.workspace / name).write_bytes(body)
        commit = "git -c user.name=r -c user.email=r@localhost commit -qm First --allow-empty"
        self._succeed("sh", f"git init -q && {commit}")

    def run(self, block: Block) -> None:
        """Run a block; a console block must also print what it shows.

        Before it, the reader has had a run that changed a file: blocks speak of the last one.
        """
        self._earlier += 1
        model = self._stage.scenario(*_writes(self._earlier), name="earlier")
        self._succeed("sh", f"batten -p Begin --permission-mode acceptEdits --model {model}")
        if block.kind == "console":
            for command, expected in transcript(block.text):
                self._compare(block, command, expected)
            return
        for script in block.scripts():
            self._succeed("sh" if block.kind == "yaml" else block.kind, script, block.place)

    def _succeed(self, kind: str, script: str, place: str = "before the page") -> None:
        ended = self._run(kind, script)
        told = ended.stdout[-4000:]
        assert ended.returncode == 0, f"{place} exits with {ended.returncode}:\n{told}"
        assert "Traceback" not in ended.stdout, f"{place}:\n{told}"

    def _compare(self, block: Block, command: str, expected: list[str]) -> None:
        told = self._run("sh", command).stdout.splitlines()
        for line in expected:
            pattern = ".*".join(re.escape(part) for part in line.split("…"))
            found = any(re.fullmatch(pattern, one) for one in told)
            assert found, f"{block.place}: {command!r} does not print {line!r} but {told}"

    def _adapt(self, script: str) -> str:
        """The script with our model and paths in the places of those that a reader has."""
        for shown, ours in (
            (r"\bRUN\b|\bSESSION\b", "last"),
            ("/path/to/batten", str(BIN / "batten")),
            ("/path/to/project", str(self.workspace)),
            (r"(?m)(?<=--model )\w+/claude[\w.-]+", self._model),
            (r'"(anthropic/)?claude-[\w.-]+"', repr(self._model)),
        ):
            script = re.sub(shown, ours, script)
        for shown, ours in self._ports.items():
            script = re.sub(rf"\b{shown}\b", ours, script)
        for protocol, only in ONE_CHECK.items():
            command = f"batten conformance {protocol} "
            script = re.sub(f"{command}(?!.*--only)", f"{command} --only '{only}' ", script)
        return script

    def _run(self, kind: str, script: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*STARTS[kind], PRELUDES.get(kind, "") + self._adapt(script)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.workspace,
            env=self._environ,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )


def _looks(turn: int) -> list[list[Statement]]:
    look = bash("git status --short", f"look-{turn}")
    return [[say("Let me look."), look], [say('{"bugs": []}'), end()]]


def _writes(turn: int) -> list[list[Statement]]:
    write = call("write_file", f"write-{turn}", file_path="notes.md", content=f"{turn}\n")
    return [[say("I write it down."), write], [say("Done."), end()]]


def _prompts() -> list[list[Statement]]:
    """For several prompts in one session; every second one changes a file."""
    return [frame for turn in range(1, 5) for frame in (*_looks(turn), *_writes(turn))]
