"""Whole processes on the scripted model server: wall time, CPU time and memory, per run and turn.

Other agents are measured beside ours when they are installed: `BENCH_CLAUDE` and
`BENCH_CODEX` name their executables.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

Row = dict[str, Any]
Argv = Callable[[int], list[str]]
Used = tuple[float, float, float]
"""Wall seconds, CPU seconds of a process and its children, and peak MB."""

TURNS = 30
STYLES = {
    "text": ["text"],
    "stream-json": ["stream-json"],
    "stream-json, each delta": ["stream-json", "--include-partial-messages"],
    "events": ["events"],
}
"""Formats of our own output, and the flags for them."""
_HERE = os.path.dirname(os.path.abspath(__file__))
_BATTEN = os.path.join(os.path.dirname(sys.executable), "batten")
_KEY = "bench-key-that-opens-nothing"


@contextmanager
def model_server() -> Generator[int]:
    """The server in a process of its own; its port."""
    server = subprocess.Popen(
        [sys.executable, os.path.join(_HERE, "model_server.py")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        yield int(server.stdout.readline())
    finally:
        server.kill()
        server.wait()


def rows(rounds: int = 7) -> list[Row]:
    """One row per agent and format."""
    scratch = tempfile.mkdtemp(prefix="batten-bench-")
    try:
        with model_server() as port:
            environment = _environment(scratch, port)
            agents = dict(_agents(scratch, port))
            _round(agents, 1, environment, scratch)
            short = [_round(agents, 1, environment, scratch) for _ in range(rounds)]
            long = [_round(agents, TURNS, environment, scratch) for _ in range(rounds)]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return [
        _row(name, [one[name] for one in short], [one[name] for one in long]) for name in agents
    ]


def _round(
    agents: dict[str, Argv], turns: int, environment: dict[str, str], scratch: str
) -> dict[str, Used]:
    """Each agent once, in turns: the speed of the machine changes from minute to minute."""
    return {name: _run(argv(turns), environment, scratch) for name, argv in agents.items()}


def _agents(scratch: str, port: int) -> Iterator[tuple[str, Argv]]:
    work = os.path.join(scratch, "work")
    os.makedirs(work)
    bare = [sys.executable, os.path.join(_HERE, "bare.py"), str(port)]
    yield "a bare Python loop", _words([*bare, "bench-{}", os.path.join(scratch, "bare.db")])
    for name, flags in STYLES.items():
        words = ["-p", "go", "--allow", "bash", "--workspace", work, "--output-format", *flags]
        yield f"batten ({name})", _words([_BATTEN, *words, "--model", "anthropic/bench-{}"])
    claude = os.environ.get("BENCH_CLAUDE")
    if claude:
        flags = ["--allowedTools", "Bash", "--max-turns", "100", "--bare"]
        yield "Claude Code --bare", _words([claude, "-p", "go", *flags, "--model", "bench-{}"])
    codex = os.environ.get("BENCH_CODEX")
    if codex:
        provider = f'{{name="bench",base_url="http://127.0.0.1:{port}/v1",wire_api="responses"}}'
        flags = ["-c", f"model_providers.bench={provider}", "-c", 'model_provider="bench"']
        flags += ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        yield "Codex", _words([codex, "exec", *flags, "-m", "bench-{}", "go"])


def _words(words: list[str]) -> Argv:
    """A command line whose model names the number of turns."""
    return lambda turns: [word.replace("bench-{}", f"bench-{turns}") for word in words]


def _environment(scratch: str, port: int) -> dict[str, str]:
    """Leaves out variables that would make Python compile our modules at each start."""
    slow = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if name not in slow}
    return kept | {
        "BATTEN_HOME": os.path.join(scratch, "home"),
        "HOME": scratch,
        "ANTHROPIC_API_KEY": _KEY,
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def _row(name: str, short: list[Used], long: list[Used]) -> Row:
    """Medians of whole runs with one tool turn, and of the cost of each further turn."""
    wall, cpu, rss = (statistics.median(column) for column in zip(*short, strict=True))
    long_wall, long_cpu, _ = (statistics.median(column) for column in zip(*long, strict=True))
    return {
        "agent": name,
        "wall_s": wall,
        "cpu_s": cpu,
        "rss_mb": rss,
        "turn_wall_ms": (long_wall - wall) / (TURNS - 1) * 1000,
        "turn_cpu_ms": (long_cpu - cpu) / (TURNS - 1) * 1000,
    }


def _run(argv: list[str], environment: dict[str, str], scratch: str) -> Used:
    started = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            argv,
            env=environment,
            cwd=os.path.join(scratch, "work"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            tail = errors.read()[-2000:].decode(errors="replace")
            raise RuntimeError(f"{argv[0]} ended with {process.returncode}: {tail}")
    return wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
