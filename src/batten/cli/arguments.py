"""The flags of print mode."""

import argparse
import os
from typing import Any, NoReturn

from batten.agent.permissions import MODES, parse_rule
from batten.cli import COMMANDS
from batten.contract.errors import CallerError

_MOST = 1_000_000_000
"""No count, sum or patience is larger: some are stored in 64 bits after they are multiplied."""

OUTPUT_FORMATS = ("text", "json", "stream-json", "events")


class UsageError(CallerError):
    """The command line is wrong; exit code 64."""

    code = "usage"


class _Help(argparse.HelpFormatter):
    """Knows its width: to find it out, the usual one loads a module for archives."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=_columns())


def _columns() -> int:
    try:
        return max(40, os.get_terminal_size(1).columns - 2)
    except OSError:
        return 98


class Parser(argparse.ArgumentParser):
    """Raises instead of leaving, so that every ending takes the same way out."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how, formatter_class=_Help, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\ntry: {self.prog} --help")


class _RuleAction(argparse.Action):
    """Rules keep the order they were given in, whatever their action."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        action: Any = (option_string or "").lstrip("-")
        try:
            rule = parse_rule(action, values)
        except CallerError as error:
            parser.error(str(error))
        namespace.rules = [*(namespace.rules or []), rule]


def parser() -> Parser:
    commands = ", ".join(f"{name} ({about})" for name, about in COMMANDS.items())
    made = Parser(
        prog="batten",
        description="Run an agent without a screen. `batten COMMAND --help` tells of the other "
        f"commands: {commands}.",
        epilog="Exit codes: 0 success, 1 error, 2 tool or assistant error, 64 usage, 66 no input, "
        "75 max turns, 78 configuration, 124 cancelled, 130 interrupted, 137 budget.",
    )
    add = made.add_argument
    add("prompt_words", nargs="*", metavar="PROMPT", help="the prompt; `-` or none reads stdin")
    add("-p", "--print", nargs="?", const="", metavar="PROMPT", help="run headless")
    add("--prompt", metavar="TEXT", help="the prompt")
    add("--output-format", choices=OUTPUT_FORMATS, default="text")
    add("--model", action="append", metavar="PROVIDER/MODEL", help="which model")
    add("--fallback-model", action="append", default=[], metavar="PROVIDER/MODEL")
    add("--permission-mode", choices=MODES)
    add(
        "--allow-dangerously-skip-permissions",
        action="store_true",
        help="let the mode bypassPermissions be used",
    )
    for action in ("allow", "deny", "ask"):
        add(
            f"--{action}",
            dest="rules",
            action=_RuleAction,
            metavar="RULE",
            help=f"{action} calls matching Tool or Tool(pattern); the first match decides",
        )
    add("--tools", metavar="NAMES", help="offer only these tools, separated by commas")
    add("--max-turns", type=at_least_0, metavar="N")
    add("--max-budget-usd", type=_dollars, metavar="USD")
    add("--max-seconds", type=_seconds, metavar="S", help="wall time of the run")
    add("--max-output-tokens", type=_at_least_1, metavar="N")
    add("--temperature", type=_temperature)
    add("--thinking-tokens", type=at_least_0, metavar="N")
    add("--json-schema", metavar="JSON|FILE", help="the final answer must fit this schema")
    add("--system", metavar="TEXT", help="in place of our system prompt")
    add("--append-system-prompt", metavar="TEXT")
    add("--no-instructions", action="store_true", help="do not read AGENTS.md, CLAUDE.md, memory")
    add("--workspace", metavar="DIR", help="where to work; default: here")
    add("--sandbox", choices=("auto", "bwrap", "landlock", "none"), default="auto")
    add("--sandbox-network", choices=("allow", "deny"), default="deny", help="for commands")
    add("--mcp-config", metavar="JSON|FILE", help="MCP servers")
    add("--record", metavar="FILE", help="write a scenario that plays this run again")
    add(
        "--resume",
        "-r",
        metavar="ID",
        help="go on with a session; without a prompt, finish its run",
    )
    add("--continue", "-c", dest="continue_", action="store_true", help="resume the newest here")
    add("--branch", metavar="RUN[:SEQUENCE]", help="a new session from a place in a run")
    add("--ask-operator", action="store_true", help="`batten answer` in another terminal approves")
    add("--request-seconds", type=_seconds, metavar="S", help="how long a question waits")
    add(
        "--progress", choices=("auto", "always", "never"), default="auto", help="timeline on stderr"
    )
    add("--version", "-v", action="store_true")
    return made


def _number(text: str, kind: type[int] | type[float], least: float, most: float, what: str) -> Any:
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return value


def at_least_0(text: str) -> int:
    return int(_number(text, int, 0, _MOST, "a whole number of at least 0"))


def sequence(text: str) -> int:
    return int(_number(text, int, -1, _MOST, "a sequence: -1, or the number of a fact"))


def _at_least_1(text: str) -> int:
    return int(_number(text, int, 1, _MOST, "a whole number of at least 1"))


def _dollars(text: str) -> float:
    return float(_number(text, float, 0, _MOST, "an amount in US dollars"))


def _seconds(text: str) -> float:
    return float(_number(text, float, 0.001, _MOST, "a number of seconds above 0"))


def _temperature(text: str) -> float:
    return float(_number(text, float, 0, 2, "a temperature from 0 to 2"))
