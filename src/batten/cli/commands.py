"""The flags of all commands beside print mode; each command is a function to an exit code."""

import asyncio
import logging
import os
import sys
from argparse import Namespace
from collections.abc import Callable

from batten.cli import load
from batten.cli.arguments import at_least_0, seconds, sequence
from batten.cli.parsing import Parser, add_debugging
from batten.contract.errors import BattenError, CallerError, JournalError, NotFound
from batten.contract.outcomes import exit_code
from batten.serve.output import redact_for_people, say
from batten.serve.words import redacting

_log = logging.getLogger("batten.cli")
_RUN = "a run or session: its id, a UUID, a unique prefix, or `last`"
_JSON = "one object a line"


def run_command(argv: list[str]) -> int:
    """Parse the flags of a command and run it; errors are reported on stderr."""
    redact_for_people.set(redacting(os.environ))
    try:
        options = command_parsers()[argv[0]].parse_args(argv[1:])
        log = None
        if options.debug or options.debug_file is not None:
            log = load("debugging").open_log(options, argv, os.environ)
    except SystemExit as left:  # argparse exits only after --help
        return int(left.code or 0)
    except BattenError as error:
        say(f"batten: {error}")
        return _code(error)
    code = _run(options)
    if log is not None:
        log.end(code)
    return code


def _run(options: Namespace) -> int:
    try:
        module, _, function = options.run.partition(".")
        result = getattr(load(module), function)(options)
        code = asyncio.run(result) if asyncio.iscoroutine(result) else result
        sys.stdout.flush()
        return int(code)
    except BrokenPipeError:
        return 1
    except OSError as error:
        _log.debug("it failed", exc_info=error)
        say(f"batten: {error}")
        return 1
    except KeyboardInterrupt:
        return exit_code("interrupted")
    except BattenError as error:
        _log.debug("it failed", exc_info=error)
        say(f"batten: {error}")
        return _code(error)


def _code(error: BattenError) -> int:
    match error:
        case CallerError(code="usage"):
            return exit_code("usage")
        case NotFound():
            return exit_code("no_input")
        case CallerError(code="config"):
            return exit_code("config")
        case JournalError():
            return exit_code("store")
        case _:
            return 1


def command_parsers() -> dict[str, Parser]:
    """The parser of each command; `headless` and `conformance` have their own."""
    made: dict[str, Parser] = {}

    def command(name: str, run: str, about: str) -> Parser:
        """`run` is `module.function` in this package; the module is imported on use."""
        made[name] = added = Parser(prog=f"batten {name}", description=about)
        added.set_defaults(run=run)
        add_debugging(added)
        return added

    _add_looking(command)
    _add_changing(command)
    _add_answering(command)
    _add_setup(command)
    return made


def _add_looking(command: Callable[[str, str, str], Parser]) -> None:
    runs = command("runs", "inspection.list_runs", "List runs, newest first.")
    runs.add_argument("run_ids", nargs="*", metavar="RUN", help="only these")
    runs.add_argument("--json", action="store_true", help=_JSON)
    runs.add_argument("--session", metavar="SESSION", help="only the runs of one session")
    runs.add_argument("--limit", type=at_least_0, default=50, metavar="N", help="(50)")

    show = command("show", "inspection.show_run", "A readable timeline of a run.")
    show.add_argument("run_id", metavar="RUN", help=_RUN)

    events = command(
        "events", "inspection.print_events", "The stored events of a run, byte for byte."
    )
    events.add_argument("run_id", metavar="RUN", help=_RUN)
    events.add_argument(
        "--after", type=sequence, default=-1, metavar="N", help="only sequences above N"
    )
    events.add_argument("--follow", action="store_true", help="go on with each new one to the end")

    artifacts = command(
        "artifacts", "inspection.print_artifacts", "What a run produced; or the body of one."
    )
    artifacts.add_argument("name", metavar="RUN|ARTIFACT", help=f"{_RUN}, or an artifact")
    artifacts.add_argument("--json", action="store_true", help=_JSON)

    verify = command(
        "verify", "inspection.verify_journal", "Check that what is stored is what was written."
    )
    verify.add_argument("run_id", nargs="?", metavar="RUN", help=f"{_RUN}; default: all")
    verify.add_argument("--json", action="store_true", help=_JSON)


def _add_changing(command: Callable[[str, str, str], Parser]) -> None:
    diff = command("diff", "changes.print_diff", "What a run changed, as a unified diff.")
    diff.add_argument("run_id", metavar="RUN", help=_RUN)

    revert = command(
        "revert", "changes.revert_run", "Undo a run's changes to files, all or nothing."
    )
    revert.add_argument("run_id", metavar="RUN", help=_RUN)
    revert.add_argument("paths", nargs="*", metavar="PATH", help="only these files")
    revert.add_argument("--reason", default="", metavar="TEXT", help="stored with the change")

    prune = command(
        "prune", "changes.prune_run", "Remove the beginning of a run's events; a marker stays."
    )
    prune.add_argument("run_id", metavar="RUN", help=_RUN)
    prune.add_argument(
        "--before", type=at_least_0, required=True, metavar="SEQUENCE", help="the first to keep"
    )


def _add_answering(command: Callable[[str, str, str], Parser]) -> None:
    requests = command("requests", "answering.list_requests", "Questions that runs wait for.")
    requests.add_argument("--json", action="store_true", help=_JSON)
    requests.add_argument("run_id", nargs="?", metavar="RUN", help=f"{_RUN}; default: all")

    answer = command(
        "answer", "answering.answer_request", "Answer a question; the first answer counts."
    )
    answer.add_argument(
        "request_id", metavar="REQUEST", help="its id, or a run with one question, or `last`"
    )
    answer.add_argument("decision", choices=("allow", "deny"))
    answer.add_argument(
        "--note", default="", metavar="TEXT", help="a comment, or the input asked for"
    )

    cancel = command(
        "cancel", "answering.cancel_run", "Ask a run to end. No call begins after that."
    )
    cancel.add_argument("run_id", metavar="RUN", help=_RUN)
    cancel.add_argument("--reason", default="", metavar="TEXT", help="stored with the request")

    scenario = command(
        "scenario", "scenario.run_scenario", "Check scripted scenarios, or run and judge them."
    )
    scenario.add_argument("action", choices=("validate", "run"))
    scenario.add_argument("paths", nargs="+", metavar="FILE")
    scenario.add_argument("--workspace", metavar="DIR", help="default: the scenario's directory")
    scenario.add_argument("--json", action="store_true", help=_JSON)
    scenario.add_argument("--junit", metavar="FILE", help="also write a JUnit report")


def _add_setup(command: Callable[[str, str, str], Parser]) -> None:
    sandbox = command(
        "sandbox",
        "sandbox.show_sandbox",
        "Show the layer that confines commands in a workspace, and what it leaves open.",
    )
    sandbox.add_argument("directory", nargs="?", metavar="DIR", help="the workspace; default: here")
    modes = ("auto", "bwrap", "landlock", "none")
    sandbox.add_argument("--sandbox", choices=modes, default="auto", help="the layer to try (auto)")
    sandbox.add_argument(
        "--sandbox-network", choices=("allow", "deny"), default="deny", help="for commands (deny)"
    )
    sandbox.add_argument("--json", action="store_true", help=_JSON)

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

    doctor = command(
        "doctor",
        "doctor.examine",
        "Check what a run needs: versions, settings, model keys and servers, MCP servers, the "
        "sandbox, the store, disk and clock. Exit code 0 if nothing stands in the way of a run, "
        "1 otherwise.",
    )
    doctor.add_argument("directory", nargs="?", metavar="DIR", help="the workspace; default: here")
    doctor.add_argument("--offline", action="store_true", help="contact no server and start none")
    doctor.add_argument(
        "--timeout", type=seconds, default=5.0, metavar="S", help="for each server (5)"
    )
    doctor.add_argument("--json", action="store_true", help="one object with all findings")

    models = command(
        "models",
        "models.list_models",
        "List known models with their prices in USD per million tokens, for the providers whose "
        "key or address is set.",
    )
    models.add_argument("text", nargs="?", metavar="TEXT", help="only names that contain this")
    models.add_argument("--all", action="store_true", help="of every provider")
    models.add_argument("--json", action="store_true", help=_JSON)

    completion = command(
        "completion",
        "completion.print_completion",
        "Print a completion script. For bash: source <(batten completion bash). For zsh: "
        "source <(batten completion zsh). For fish: batten completion fish | source.",
    )
    completion.add_argument(
        "shell", nargs="?", choices=("bash", "zsh", "fish"), help="whose script"
    )
    completion.add_argument(
        "--list",
        choices=("run", "session", "request", "model", "command"),
        help="names that the scripts offer, one a line",
    )

    version = command("version", "help.print_version", "The version of Batten.")
    version.add_argument("--json", action="store_true", help="also of what it runs on")

    about = command("help", "help.print_help", "An overview, or the flags of one command.")
    about.add_argument("command", nargs="?", metavar="COMMAND")
