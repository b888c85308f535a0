"""The flags of print mode."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from batten.agent.rules.rule import parse_rule
from batten.agent.rules.verdict import MODES
from batten.cli import FLAG_VARIABLES
from batten.cli.parsing import Parser, UsageError, add_debugging, add_server, place
from batten.contract.errors import CallerError
from batten.contract.flags import parse_boolean, plain_booleans
from batten.contract.numbers import is_number

_MOST = 1_000_000_000
"""Limit of counts, sums and durations: some are multiplied and stored in 64 bits."""

PROTOCOLS = ("heddle", "maestro", "acp")
OUTPUT_FORMATS = ("text", "json", "stream-json", "events")

_FAIL_ON = ("denied", "tool_error")
_PARTS = {"hooks": "hooks", "skills": "skills", "mcp": "MCP servers", "plugins": "plugins"}


_RULE_FLAGS = {
    "allow": "allow calls that match Tool or Tool(pattern)",
    "deny": "deny such calls, whatever allows them",
    "ask": "ask about such calls, whatever allows them",
}


class _RulesAction(argparse.Action):
    """Collects rules of all actions in the order of the command line."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        try:
            rules = [parse_rule(self.const, text) for text in values]
        except CallerError as error:
            parser.error(str(error))
        namespace.rules = [*(namespace.rules or []), *rules]


def _one_rule(text: str) -> list[str]:
    return [text]


def _comma_list(text: str) -> list[str]:
    """Split at commas outside parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def parse(argv: list[str], environ: Mapping[str, str]) -> argparse.Namespace:
    """The options of an invocation; raises `UsageError`."""
    made = parser()
    # The environment comes first: the last of two flags wins.
    try:
        options = made.parse_args(_plain_booleans(made, [*_from(environ, made), *argv]))
    except UsageError as error:
        raise _mistyped_command(argv) or error from None
    if options.prompt_words and not _is_prompt(options, argv):
        from batten.cli.suggesting import check_prompt_words

        is_first = options.output_format is None and argv[:1] == options.prompt_words[:1]
        check_prompt_words(options.prompt_words, is_first=is_first)
    options.given = _given(made, options)
    _check_permissions(made, options)
    _check_names(made, options, "resume", "branch", "session_id")
    if options.branch and (options.resume or options.continue_):
        made.error("--branch starts a new session from a run; leave out --resume and --continue")
    if options.fork_session and not (options.resume or options.continue_):
        made.error("--fork-session needs --resume or --continue: a session to fork")
    if options.session_id and (options.resume or options.continue_) and not options.fork_session:
        made.error("--session-id names a new session; with --resume, give --fork-session too")
    if options.no_save and (options.resume or options.continue_ or options.branch):
        made.error("--no-save keeps nothing, so it cannot go on with a session that is kept")
    if options.no_auto_print and not _is_headless(options):
        made.error("there is no interactive mode to start with --no-auto-print; give -p")
    return options


def _is_prompt(options: argparse.Namespace, argv: list[str]) -> bool:
    """Whether a flag marks the words as a prompt."""
    return options.print is not None or options.prompt is not None or "--" in argv


def _mistyped_command(argv: list[str]) -> UsageError | None:
    """Flags of a mistyped command are unknown to us: the command is the mistake to report."""
    if not argv or argv[0].startswith("-"):
        return None
    from batten.cli.suggesting import mistyped_command

    return mistyped_command(argv[0])


def _from(environ: Mapping[str, str], made: Parser) -> list[str]:
    """The flags that environment variables set, of those that the parser knows.

    An empty variable sets nothing: that is how many programs pass on one that they lack.
    """
    known = made.booleans()
    return [
        flag
        for flag, variable in FLAG_VARIABLES.items()
        if flag in known and environ.get(variable) and _boolean(environ[variable], variable)
    ]


def parse_headless(
    argv: Sequence[str],
    environ: Mapping[str, str],
    protocol: str | None = None,
    command: Parser | None = None,
) -> argparse.Namespace:
    """The options of `batten headless`; with `protocol`, there is no `--protocol` flag.

    `command` is that of another command whose further flags these are: errors speak of it.
    """
    made = headless_parser(protocol)
    if command is not None:
        made.stand_in_for(command)
    options = made.parse_args(_plain_booleans(made, [*_from(environ, made), *argv]))
    _check_permissions(made, options)
    _check_names(made, options, "resume")
    if options.resume and (options.protocol != "maestro" or options.no_save):
        made.error("--resume goes on with a session that is kept, and only Maestro's is named so")
    return options


def headless_parser(protocol: str | None = None) -> Parser:
    made = Parser(
        prog="batten headless",
        usage="batten headless --protocol PROTOCOL [FLAG ...]",
        description="Speak a protocol on standard input and output, for programs that embed us.",
    )
    if protocol is None:
        made.add_argument(
            "--protocol", choices=PROTOCOLS, required=True, help="whose messages to speak"
        )
    _add_permissions(made)
    _add_model(made)
    _add_surroundings(made)
    made.add_argument(
        "--record", type=place, metavar="FILE", help="write a scenario that plays the runs again"
    )
    made.add_argument("--no-save", action="store_true", help="keep nothing of the sessions")
    made.add_argument("--resume", metavar="SESSION", help="go on with a session (maestro)")
    add_debugging(made)
    made.set_defaults(protocol=protocol)
    return made


def named_tools(options: argparse.Namespace) -> tuple[str, ...] | None:
    """The only tools to offer; None without a flag for it."""
    if options.no_tools:
        return ()
    if options.tools is None:
        return None
    return tuple(name.strip() for name in options.tools.split(",") if name.strip())


def _check_permissions(made: Parser, options: argparse.Namespace) -> None:
    if options.no_permissions and (options.rules or options.auto_allow):
        made.error("--no-permissions leaves nothing for --allow, --deny, --ask and --auto-allow")
    if options.no_save and options.ask_operator:
        made.error(
            "--no-save keeps requests in memory: `batten answer`, for --ask-operator, sees none"
        )
    if options.no_save and options.review:
        made.error("--no-save keeps no proposed edits, and --review leaves them to `batten apply`")
    if options.no_tools and options.tools is not None:
        made.error("--no-tools offers no tools, --tools only those it names; give one of them")


def _check_names(made: Parser, options: argparse.Namespace, *names: str) -> None:
    """An empty name, often an unset variable of a script, must not start something else."""
    for name in names:
        value = getattr(options, name)
        if value is not None and not value.strip():
            made.error(
                f"--{name.replace('_', '-')} needs the name of a session or run; it is empty"
            )


def _given(made: Parser, options: argparse.Namespace) -> str | None:
    """The prompt, from one of its three places; `-` for standard input.

    A `-` beside a prompt sets `reads_stdin`: standard input is then read to its end.
    """
    words: list[str] = options.prompt_words
    last = "-" if words[-1:] == ["-"] else ""
    places = (options.print, options.prompt, " ".join(words[:-1] if last else words), last)
    given: list[str] = [place for place in places if place]
    options.reads_stdin = len(given) > 1 and "-" in given
    if options.reads_stdin:
        given.remove("-")
    if len(given) > 1:
        made.error(f"more than one prompt was given: {given[0]!r} and {given[1]!r}")
    if options.input_format == "stream-json" and given not in ([], ["-"]):
        made.error(
            "--input-format stream-json reads its prompts from standard input; "
            f"leave out the prompt {given[0]!r}, or give `-`"
        )
    if options.input_format == "stream-json" and options.attach:
        made.error("--attach adds files to a prompt of the command line, not to stream-json input")
    return given[0] if given else None


def _is_headless(options: argparse.Namespace) -> bool:
    asked = options.output_format is not None or options.input_format == "stream-json"
    return options.print is not None or asked


def _plain_booleans(made: Parser, argv: list[str]) -> list[str]:
    try:
        return plain_booleans(made.booleans(), argv)
    except CallerError as error:
        raise UsageError(str(error)) from error


def _boolean(text: str, what: str) -> bool:
    try:
        return parse_boolean(text, what)
    except CallerError as error:
        raise UsageError(str(error)) from error


class _MainParser(Parser):
    """Its help is the overview of all commands, then the flags."""

    def format_help(self) -> str:
        from batten.cli.help import overview

        return overview(super().format_help())


def parser() -> Parser:
    made = _MainParser(prog="batten", usage=argparse.SUPPRESS)
    _add_input_and_output(made)
    _add_permissions(made)
    _add_model(made)
    _add_surroundings(made)
    _add_sessions(made)
    add_server(made)
    add_debugging(made)
    made.add_argument("--version", "-v", action="store_true", help="the version of Batten")
    return made


def _add_input_and_output(made: Parser) -> None:
    add = made.add_argument_group("Input and output").add_argument
    add("prompt_words", nargs="*", metavar="PROMPT", help="the prompt; `-` or none reads stdin. "
        "What is piped joins the prompt; with a `-` behind it, all of it")  # fmt: skip
    add("-p", "--print", nargs="?", const="", metavar="PROMPT", help="run headless")
    add("--prompt", metavar="TEXT", help="the prompt")
    add("--attach", action="append", default=[], metavar="FILE", help="a text or picture for the "
        "model (PNG, JPEG, GIF, WebP); may be repeated")  # fmt: skip
    add("--no-auto-print", action="store_true", help="do not run headless unless told to")
    add("--output-format", choices=OUTPUT_FORMATS, help="default: text")
    add("--input-format", choices=("text", "stream-json"), default="text",
        help="of standard input; default: text")  # fmt: skip
    add("--include-partial-messages", action="store_true", help="frames for pieces of text")
    add("--include-hook-events", action="store_true", help="frames for hooks")
    add("--replay-user-messages", action="store_true", help="frames for the prompts")
    add(
        "--json-schema",
        type=place,
        metavar="JSON|FILE",
        help="the final answer must fit this schema",
    )
    add("--fail-on", type=_fail_on, metavar="WHAT", help="an ending is no success after any of: "
        + ", ".join(_FAIL_ON))  # fmt: skip
    add(
        "--progress",
        choices=("auto", "always", "never"),
        default="auto",
        help="show the run on stderr while it works; auto: on a terminal",
    )
    add("--verbose", action="store_true", help="a timeline with times, in which nothing is cut")
    add(
        "--quiet",
        action="store_true",
        help="the answer alone; goes before --verbose and --progress",
    )
    add_color(made)
    add("--compat", choices=("claude-code", "none"), help="whose frames and flags to use; "
        "default: those of Claude Code when its SDK starts us")  # fmt: skip
    add("--record", type=place, metavar="FILE", help="write a scenario that plays this run again")


def add_color(made: Parser) -> None:
    made.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="auto: on a terminal, unless NO_COLOR is set or TERM is dumb",
    )


def _add_permissions(made: Parser) -> None:
    add = made.add_argument_group("Permissions").add_argument
    add("--permission-mode", choices=MODES, help="what happens to calls without a rule")
    add(
        "--allow-dangerously-skip-permissions",
        action="store_true",
        help="let the mode bypassPermissions be used",
    )
    for action, about in _RULE_FLAGS.items():
        add(
            f"--{action}",
            dest="rules",
            action=_RulesAction,
            const=action,
            type=_one_rule,
            metavar="RULE",
            help=about,
        )
    for action, flag in (("allow", "--allowed-tools"), ("deny", "--disallowed-tools")):
        add(
            flag,
            dest="rules",
            action=_RulesAction,
            const=action,
            type=_comma_list,
            metavar="RULES",
            help=f"--{action} for each of these, separated by commas",
        )
    add("--auto-allow", action="store_true", help="allow what would be asked")
    add("--no-permissions", action="store_true", help="hold nothing against any rule")
    add("--ask-operator", action="store_true", help="`batten answer` in another terminal approves")
    add("--review", action="store_true", help="edits change no files; `batten apply` makes them")
    add("--request-seconds", type=seconds, metavar="S", help="how long a question waits")
    add("--sandbox", choices=("auto", "bwrap", "landlock", "none"), default="auto",
        help="what confines commands; default: the strongest that works")  # fmt: skip
    add("--sandbox-network", choices=("allow", "deny"), default="deny",
        help="whether commands reach the network; default: deny")  # fmt: skip


def _add_model(made: Parser) -> None:
    group = made.add_argument_group("Model and limits")
    add = group.add_argument
    add("--model", action="append", metavar="PROVIDER/MODEL", help="which model")
    add("--provider", metavar="NAME", help="whose model, if --model does not say")
    add("--fallback-model", action="append", default=[], metavar="PROVIDER/MODEL",
        help="the next one if a model fails; may be repeated")  # fmt: skip
    add("--max-turns", type=at_least_0, metavar="N", help="model calls with their tools")
    add("--max-budget-usd", type=_dollars, metavar="USD", help="cost of all runs of this call")
    add("--require-price", action="store_true", help="with a budget, refuse models without a "
        "known price, whose cost is not counted")  # fmt: skip
    add("--max-seconds", type=seconds, metavar="S", help="wall time of the run")
    add("--max-retries", type=at_least_0, metavar="N", help="of a failed model call; default: 2 "
        "in print mode and for Heddle, otherwise 10")  # fmt: skip
    add("--max-output-tokens", "--max-tokens", type=at_least_1, metavar="N", help="of each answer")
    add("--temperature", type=_temperature, metavar="T", help="from 0 to 2")
    add("--thinking-tokens", type=at_least_0, metavar="N", help="for thinking; 0 turns it off")
    add("--record-thinking", action="store_true", help="journal the model's thinking")
    system = group.add_mutually_exclusive_group()
    system.add_argument("--system", metavar="TEXT", help="in place of our system prompt")
    system.add_argument(
        "--system-file", "--system-prompt-file", metavar="FILE", help="the same from a file"
    )
    system.add_argument("--no-system", action="store_true", help="without our system prompt")
    appended = group.add_mutually_exclusive_group()
    appended.add_argument("--append-system-prompt", metavar="TEXT", help="after our system prompt")
    appended.add_argument(
        "--append-system-prompt-file", metavar="FILE", help="the same from a file"
    )


def _add_surroundings(made: Parser) -> None:
    add = made.add_argument_group("Surroundings").add_argument
    add("--workspace", type=place, metavar="DIR", help="where to work; default: here")
    add("--add-dir", action="append", default=[], metavar="DIR", help="a directory to read and "
        "write beside the workspace; may be repeated")  # fmt: skip
    add("--bare", action="store_true", help="only what the flags say: no hooks, skills, plugins, "
        "MCP servers, memory, instructions, settings")  # fmt: skip
    add("--settings", metavar="JSON|FILE", help="settings that go before those of all files")
    add("--setting-sources", metavar="NAMES", help="of managed, user, project, local")
    add("--mcp-config", action="append", default=[], metavar="JSON|FILE", help="MCP servers")
    add("--plugin-dir", type=place, action="append", default=[], metavar="DIR", help="a plugin")
    add("--trust-workspace", action="store_true", help="use all that the workspace brings, for "
        "this invocation (a CI job on code of your own)")  # fmt: skip
    add("--tools", metavar="NAMES", help="offer only these tools, separated by commas")
    add("--no-tools", action="store_true", help="offer no tools")
    add("--no-instructions", action="store_true", help="do not read AGENTS.md, CLAUDE.md, memory")
    for name in _PARTS:
        add(f"--no-{name}", action="store_true", help=f"leave out {_PARTS[name]}")
    add("--no-sub-agent", action="store_true", help="no child runs")


def _add_sessions(made: Parser) -> None:
    add = made.add_argument_group("Sessions").add_argument
    add(
        "--resume",
        "-r",
        metavar="SESSION",
        help="go on with a session; without a prompt, finish its run",
    )
    add("--continue", "-c", dest="continue_", action="store_true", help="resume the newest here")
    add("--session-id", metavar="UUID", help="the id of the new session")
    add("--fork-session", action="store_true", help="resume as a new session; the old one stays")
    add("--no-save", action="store_true", help="keep nothing of the session")
    add("--branch", metavar="RUN[:SEQUENCE]", help="a new session from a place in a run")
    add("--worktree", nargs="?", const="", metavar="NAME", help="work in a git worktree of its "
        "own, on branch batten/NAME; removed at the end if it holds nothing new")  # fmt: skip


def _number(text: str, kind: type[int] | type[float], least: float, most: float, what: str) -> Any:
    try:
        # Python takes digits of any script, underscores and blanks too.
        value = kind(text) if is_number(text) else None
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return value


def at_least_0(text: str) -> int:
    return int(_number(text, int, 0, _MOST, "a whole number of at least 0"))


def port(text: str) -> int:
    return int(_number(text, int, 0, 65535, "a port: 0 to 65535"))


def sequence(text: str) -> int:
    return int(_number(text, int, -1, _MOST, "a sequence: -1, or the number of a fact"))


def at_least_1(text: str) -> int:
    return int(_number(text, int, 1, _MOST, "a whole number of at least 1"))


def _dollars(text: str) -> float:
    return float(_number(text, float, 0, _MOST, "an amount in US dollars"))


def seconds(text: str) -> float:
    return float(_number(text, float, 0.001, _MOST, "a number of seconds above 0"))


def _fail_on(text: str) -> tuple[str, ...]:
    names = tuple(_comma_list(text))
    if not names or any(name not in _FAIL_ON for name in names):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of {', '.join(_FAIL_ON)}")
    return names


def _temperature(text: str) -> float:
    return float(_number(text, float, 0, 2, "a temperature from 0 to 2"))
