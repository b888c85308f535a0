"""The flags of all commands beside print mode; each command is a function to an exit code."""

import asyncio
import os
import sys
from collections.abc import Callable

from batten.cli import load
from batten.cli.arguments import Parser, UsageError, at_least_0, sequence
from batten.contract.errors import BattenError, CallerError, JournalError, NotFound
from batten.contract.outcomes import exit_code
from batten.serve.output import redact_for_people, say
from batten.serve.words import redacting


def run_command(argv: list[str]) -> int:
    """Parse the flags of a command and run it; errors are reported on stderr."""
    redact_for_people.set(redacting(os.environ))
    try:
        options = _parser().parse_args(argv)
        module, _, function = options.run.partition(".")
        result = getattr(load(module), function)(options)
        code = asyncio.run(result) if asyncio.iscoroutine(result) else result
        sys.stdout.flush()
        return int(code)
    except SystemExit as left:  # argparse exits only after --help
        return int(left.code or 0)
    except BrokenPipeError:
        return 1
    except OSError as error:
        say(f"batten: {error}")
        return 1
    except KeyboardInterrupt:
        return exit_code("interrupted")
    except BattenError as error:
        say(f"batten: {error}")
        return _code(error)


def _code(error: BattenError) -> int:
    match error:
        case UsageError():
            return exit_code("usage")
        case NotFound():
            return exit_code("no_input")
        case CallerError(code="config"):
            return exit_code("config")
        case JournalError():
            return exit_code("store")
        case _:
            return 1


def _parser() -> Parser:
    made = Parser(prog="batten")
    commands = made.add_subparsers(required=True, parser_class=Parser)

    def command(name: str, run: str, about: str) -> Parser:
        """`run` is `module.function` in this package; the module is imported on use."""
        added = commands.add_parser(name, help=about, description=about)
        added.set_defaults(run=run)
        return added

    _add_looking(command)
    _add_changing(command)
    _add_answering(command)
    return made


def _add_looking(command: Callable[[str, str, str], Parser]) -> None:
    runs = command("runs", "inspection.list_runs", "List runs, newest first.")
    runs.add_argument("run_ids", nargs="*", metavar="RUN", help="only these")
    runs.add_argument("--json", action="store_true", help="one object a line")
    runs.add_argument("--session", metavar="ID", help="only the runs of one session")
    runs.add_argument("--limit", type=at_least_0, default=50, metavar="N")

    show = command("show", "inspection.show_run", "A readable timeline of a run.")
    show.add_argument("run_id", metavar="RUN")

    events = command(
        "events", "inspection.print_events", "The stored events of a run, byte for byte."
    )
    events.add_argument("run_id", metavar="RUN")
    events.add_argument(
        "--after", type=sequence, default=-1, metavar="N", help="only sequences above N"
    )
    events.add_argument("--follow", action="store_true", help="go on with each new one to the end")

    artifacts = command(
        "artifacts", "inspection.print_artifacts", "What a run produced; or the body of one."
    )
    artifacts.add_argument("name", metavar="RUN|ARTIFACT")
    artifacts.add_argument("--json", action="store_true")

    verify = command(
        "verify", "inspection.verify_journal", "Check that what is stored is what was written."
    )
    verify.add_argument("run_id", nargs="?", metavar="RUN")
    verify.add_argument("--json", action="store_true")


def _add_changing(command: Callable[[str, str, str], Parser]) -> None:
    diff = command("diff", "changes.print_diff", "What a run changed, as a unified diff.")
    diff.add_argument("run_id", metavar="RUN")

    revert = command(
        "revert", "changes.revert_run", "Undo a run's changes to files, all or nothing."
    )
    revert.add_argument("run_id", metavar="RUN")
    revert.add_argument("paths", nargs="*", metavar="PATH", help="only these files")
    revert.add_argument("--reason", default="", metavar="TEXT")

    prune = command(
        "prune", "changes.prune_run", "Remove the beginning of a run's events; a marker stays."
    )
    prune.add_argument("run_id", metavar="RUN")
    prune.add_argument("--before", type=at_least_0, required=True, metavar="SEQUENCE")


def _add_answering(command: Callable[[str, str, str], Parser]) -> None:
    requests = command("requests", "answering.list_requests", "Questions that runs wait for.")
    requests.add_argument("--json", action="store_true")
    requests.add_argument("run_id", nargs="?", metavar="RUN")

    answer = command(
        "answer", "answering.answer_request", "Answer a question; the first answer counts."
    )
    answer.add_argument("request_id", metavar="REQUEST")
    answer.add_argument("decision", choices=("allow", "deny"))
    answer.add_argument(
        "--note", default="", metavar="TEXT", help="a comment, or the input asked for"
    )

    scenario = command(
        "scenario", "scenario.run_scenario", "Check a scripted scenario, or run and judge it."
    )
    scenario.add_argument("action", choices=("validate", "run"))
    scenario.add_argument("path", metavar="FILE")
    scenario.add_argument("--workspace", metavar="DIR", help="default: the scenario's directory")
    scenario.add_argument("--json", action="store_true")
    scenario.add_argument("--junit", action="store_true")

    sandbox = command(
        "sandbox",
        "sandbox.show_sandbox",
        "Show the layer that confines commands in a workspace, and what it leaves open.",
    )
    sandbox.add_argument("directory", nargs="?", metavar="DIR", help="the workspace; default: here")
    modes = ("auto", "bwrap", "landlock", "none")
    sandbox.add_argument("--sandbox", choices=modes, default="auto")
    sandbox.add_argument("--sandbox-network", choices=("allow", "deny"), default="deny")
    sandbox.add_argument("--json", action="store_true")

    trust = command(
        "trust",
        "trust.trust_workspace",
        "Show what a workspace would turn on (hooks, MCP servers, rules), and trust it.",
    )
    trust.add_argument("directory", nargs="?", metavar="DIR", help="the workspace; default: here")
    instead = trust.add_mutually_exclusive_group()
    instead.add_argument("--list", action="store_true", help="show what is trusted")
    instead.add_argument("--revoke", action="store_true", help="trust nothing here any longer")
    instead.add_argument("--yes", action="store_true", help="trust what is shown without asking")
