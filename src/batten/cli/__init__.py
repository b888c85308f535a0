"""The command line: parses flags and starts the requested mode or command."""

import sys

TYPE_CHECKING = False
"""As in `typing`, which takes longer to load than the thin client of a local service."""
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from batten.tools.contract import Tool

COMMANDS = {
    "headless": "speak a protocol on standard input and output",
    "serve": "serve tasks and runs over HTTP",
    "worker": "execute queued runs",
    "runtime": "serve agents that decide together, over gRPC",
    "decide": "let a panel of agents decide a question",
    "hosted-runner": "serve one session over HTTP for a control plane",
    "runs": "list runs, newest first",
    "stats": "runs, tokens and cost by day, model and workspace",
    "show": "a readable timeline of a run",
    "events": "the stored events of a run",
    "artifacts": "what a run produced, or one artifact's body",
    "diff": "what a run changed",
    "apply": "make the changes that a run proposes",
    "reject": "drop the changes that a run proposes",
    "revert": "undo what a run changed",
    "requests": "questions runs wait for",
    "answer": "answer a question",
    "cancel": "end a run that is working",
    "annotate": "add a score, a prompt or a plan to a run's events",
    "verify": "check the journal for damage",
    "prune": "remove old sessions, or the beginning of a run",
    "delete": "remove a session",
    "export": "write a session to a file",
    "import": "take a session from such a file",
    "backup": "copy everything, while others write",
    "scenario": "validate or run a scripted scenario",
    "conformance": "check a program that speaks heddle, maestro or acp",
    "trust": "turn on what a workspace brings",
    "sandbox": "what confines commands here, and what it leaves open",
    "keys": "make, list, rotate and revoke API keys of the service",
    "token": "print the token of this home, for its services over TCP",
    "sinks": "receivers of what happens: bus, webhooks, traces",
    "smoke": "send one event to the event bus and read it back",
    "audit": "who did what: keys, runs, answers, removals",
    "doctor": "check this machine: keys, servers, sandbox, store, disk, clock",
    "models": "known models, their prices, and which keys are set",
    "completion": "a completion script for bash, zsh or fish",
    "help": "this overview, or the flags of one command",
    "version": "the version of Batten and of what it runs on",
}

FLAG_VARIABLES = {
    f"--{name}": f"BATTEN_{name.upper().replace('-', '_')}"
    for name in (
        *("auto-allow", "no-permissions", "no-hooks", "no-skills", "no-mcp", "no-plugins"),
        *("no-sub-agent", "verbose", "debug", "require-price"),
    )
}
"""Flags that a variable can set too: `BATTEN_NO_HOOKS=1`."""

_CANCELLED = 124


def run(
    argv: list[str],
    *,
    tools: "Sequence[Tool]" = (),
    leave: "Callable[[int], object] | None" = None,
) -> int:
    """Run one invocation and return its exit code, after all its tasks and processes have ended.

    `tools` are offered to the model beside our own, for programs that embed this one. `leave` ends
    the process; it is called as soon as all output is written and closed.
    """
    try:
        "".join(argv).encode()
    except UnicodeEncodeError:
        from batten.serve.output import say

        say("batten: the command line is not UTF-8 text")
        return 64
    argv = _after_command(argv)
    if argv[:1] == ["headless"]:
        return int(load("headless").run_headless(argv[1:], tools))
    if argv[:1] == ["serve"]:
        return int(load("service").run_serve(argv[1:]))
    if argv[:1] == ["worker"]:
        return int(load("service").run_worker(argv[1:]))
    if argv[:1] == ["runtime"]:
        return int(load("runtime").run_runtime(argv[1:]))
    if argv[:1] == ["hosted-runner"]:
        return int(load("hosted_runner").run_hosted_runner(argv[1:]))
    if argv[:1] == ["hosted-session"]:
        return int(load("hosted_runner").run_hosted_session(argv[1:]))
    if argv[:1] == ["conformance"]:
        return int(load("conformance").run_conformance(argv[1:]))
    if argv and argv[0] in COMMANDS:
        return int(load("commands").run_command(argv))
    held = _HeldSignals()
    try:
        if _may_be_claude(argv):
            from batten.cli.claude_mode import is_for_us, run_claude

            if is_for_us(argv):
                return run_claude(argv, tools, leave, ready=held.release)
        from batten.cli.print_mode import run_print

        return run_print(argv, tools, leave, ready=held.release)
    finally:
        held.release()


def _after_command(argv: list[str]) -> list[str]:
    """`batten --server URL COMMAND …` as `batten COMMAND --server URL …`."""
    at = 0
    while at < len(argv) and argv[at].startswith("--server"):
        at += 1 if "=" in argv[at] else 2
    if at < len(argv) and argv[at] in COMMANDS:
        return [argv[at], *argv[:at], *argv[at + 1 :]]
    return argv


def _may_be_claude(argv: list[str]) -> bool:
    """A cheap check, before `is_for_us` loads the module for Claude Code's SDK."""
    import os

    named = any(word.startswith("--compat") for word in argv)
    return named or os.environ.get("CLAUDE_CODE_ENTRYPOINT", "").startswith("sdk-")


def load(name: str) -> "ModuleType":
    """Import a module of this package, with signals blocked."""
    from importlib import import_module

    held = _HeldSignals()
    try:
        return import_module(f"batten.cli.{name}")
    finally:
        held.release()
        collect_garbage()


class _Collector:
    """Python's garbage collector, in a process of our own."""

    rests = False


def collect_garbage() -> None:
    """End the rest that `main` gave the collector, without what was loaded meanwhile.

    A start makes no garbage, but collections then take a twentieth of its time.
    """
    import gc

    if _Collector.rests:
        _Collector.rests = False
        gc.freeze()
        gc.enable()


class _HeldSignals:
    """Blocks signals during imports: an interrupt in a half-loaded extension module crashes the
    process.
    """

    def __init__(self) -> None:
        import signal

        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, ending_signals())

    def release(self) -> None:
        import signal

        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


def current_directory() -> str:
    """The working directory; empty if it was deleted."""
    import os

    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def ending_signals() -> "list[signal.Signals]":
    """The signals that end the process. SIGHUP stays ignored if it was (nohup)."""
    import signal

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


def _interrupt(number: int, frame: object) -> None:
    """Handle a signal before the loop exists like Ctrl-C."""
    raise KeyboardInterrupt


def main() -> None:
    """The console script. Exits without interpreter shutdown: nothing is left to clean up."""
    import gc
    import signal

    gc.disable()
    _Collector.rests = True
    _leave_no_core()
    _occupy_standard_descriptors()
    _prepare_streams()
    for number in ending_signals():
        if number != signal.SIGINT:  # Python's own handler; asyncio checks that it is in place
            signal.signal(number, _interrupt)
    argv = sys.argv[1:]
    try:
        code = _run_in_service(argv)
        if code is None:
            code = run(argv, leave=_leave)
    except KeyboardInterrupt:  # before anything has started
        if argv[:1] != ["worker"]:  # its service asks it to leave, and has a log of its own
            _complain("cancelled before anything was started")
        code = _CANCELLED
    _leave(code)


def _run_in_service(argv: list[str]) -> int | None:
    """The exit code of print mode in the service of this home, if it is asked for and there."""
    import os
    from itertools import pairwise

    asked = "--server=local" in argv or ("--server", "local") in pairwise(argv)
    if not asked and os.environ.get("BATTEN_SERVER") != "local":
        return None
    words = _after_command(argv)
    if words and words[0] in COMMANDS:
        return None
    from batten.cli.local.caller import call

    return call(argv)


def _leave(code: int) -> None:
    import os

    os._exit(written(code))


def written(code: int) -> int:
    """Flush the standard streams; the exit code, which is never 0 if output was lost."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        if not code:
            _complain(f"standard output is not complete: {error.strerror}")
        code = code or 1
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:
        code = code or 1
    return code


def _complain(text: str) -> None:
    from batten.serve.output import warn

    warn(text)


def _leave_no_core() -> None:
    """Let a crash leave no core file: the keys of providers are in this process's memory.

    A limit of 1 byte also keeps a handler (`|program` in `core_pattern`) from getting one; with 0
    the kernel calls it all the same. What we start inherits the limit, and may raise it again.
    """
    import resource
    from contextlib import suppress

    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    with suppress(ValueError, OSError):  # at most 0, and not ours to raise
        resource.setrlimit(resource.RLIMIT_CORE, (1, most or 1))


def _occupy_standard_descriptors() -> None:
    """Keep the files we open from taking the place of a closed standard descriptor.

    The placeholder has the wrong access mode, so that using it is still an error.
    """
    import os

    for descriptor, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, mode)


def _prepare_streams() -> None:
    """Replace the stdout that Python omits for a closed descriptor; escape what it can't encode."""
    import os

    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
