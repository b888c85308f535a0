"""`batten help` and `batten version`: the commands by subject, and the flags of each."""

import sys
from argparse import Namespace
from textwrap import wrap

from batten.cli import COMMANDS
from batten.cli.arguments import headless_parser, parser
from batten.cli.parsing import Parser, UsageError, columns

_GROUPS = {
    "Look at runs": ("runs", "show", "events", "artifacts", "diff", "stats", "requests"),
    "Steer and undo": ("answer", "decide", "cancel", "annotate", "apply", "reject", "revert"),
    "Keep the store": ("verify", "prune", "delete", "export", "import", "backup"),
    "Serve": (
        *("serve", "worker", "runtime", "hosted-runner", "keys", "token", "sinks", "smoke"),
        "audit",
    ),
    "Embed and test": ("headless", "scenario", "conformance"),
    "Set up": (*("doctor", "models", "trust", "sandbox", "completion", "help", "version"),),
}
_USAGES = (
    ("batten -p PROMPT [FLAG ...]", "run an agent on a prompt"),
    ("batten -p < FILE", "the prompt comes from standard input"),
    ("batten -p PROMPT --resume last", "go on with the newest session"),
    ("batten COMMAND [ARGUMENT ...]", "one of the commands below"),
)
_NAMES = (
    "RUN is the id of a run or of a session, in either spelling (run_…, chat_…, a UUID), "
    "a unique prefix of one, or `last` for the newest run."
)
_CODES = (
    "Exit codes: 0 success, 1 error, 2 tool or assistant error, 64 usage, 66 not found or no "
    "input, 75 max turns, 78 configuration, 124 cancelled, 130 interrupted, 137 budget."
)


def print_help(options: Namespace) -> int:
    """The overview, or the help of one command."""
    if options.command is None:
        text = f"{_overview()}\n`batten --help` adds the flags of a run.\n"
    else:
        text = _parser_of(options.command).format_help()
    sys.stdout.write(text)
    return 0


def print_version(options: Namespace) -> int:
    from batten import __version__

    if options.json:
        import msgspec

        from batten.cli.versions import versions

        print(msgspec.json.encode(versions()).decode())
    else:
        print(f"{__version__} (Batten)")
    return 0


def overview(flags: str) -> str:
    """The help of `batten`: usage and commands, then these flags."""
    return f"{_overview()}\nFlags of a run:\n\n{flags.strip()}\n\n{_wrapped(_CODES)}"


def grouped_commands() -> dict[str, list[str]]:
    """All commands under their headings."""
    known = {title: [one for one in names if one in COMMANDS] for title, names in _GROUPS.items()}
    placed = {name for names in known.values() for name in names}
    more = [name for name in COMMANDS if name not in placed]
    return {**known, "More": more} if more else known


def _overview() -> str:
    width = max(len(usage) for usage, _ in _USAGES)
    lines = ["Batten runs agents without a screen and keeps a durable journal of each run.", ""]
    lines += [f"  {usage:<{width}}  {about}" for usage, about in _USAGES]
    for title, names in grouped_commands().items():
        lines += ["", f"{title}:"]
        lines += [f"  {name:<13} {COMMANDS[name]}" for name in names]
    return "\n".join([*lines, "", _wrapped(f"{_NAMES} `batten help COMMAND` has the details.")])


def _wrapped(text: str) -> str:
    return "\n".join(wrap(text, columns())) + "\n"


def _parser_of(name: str) -> Parser:
    if name == "headless":
        return headless_parser()
    if name == "conformance":
        from batten.cli.conformance import command_line

        return command_line()
    if name in ("serve", "worker"):
        from batten.cli.service import serve_parser, worker_parser

        return serve_parser() if name == "serve" else worker_parser()
    if name == "runtime":
        from batten.cli.runtime import runtime_parser

        return runtime_parser()
    if name == "hosted-runner":
        from batten.cli.hosted_runner import hosted_runner_parser

        return hosted_runner_parser()
    from batten.cli.commands import command_parsers

    found = command_parsers().get(name)
    if found is not None:
        return found
    if name in ("batten", "print", "flags"):
        return parser()
    from batten.cli.suggesting import nearest

    near = nearest(name, COMMANDS)
    hint = f"did you mean `batten help {near}`?" if near else "`batten help` lists them"
    raise UsageError(f"no command is named {name!r}; {hint}")
