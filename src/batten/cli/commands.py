"""The flags of all commands beside print mode; each command is a function to an exit code."""

import asyncio
import errno
import logging
import os
import sys
from argparse import Namespace
from collections.abc import Callable

from batten.cli import load
from batten.cli.amounts import age, ahead, duration, since, size, until
from batten.cli.arguments import add_color, at_least_0, seconds, sequence
from batten.cli.decide_flags import add_decide
from batten.cli.parsing import Parser, UsageError, add_debugging, add_server, place
from batten.cli.states import STATES, states
from batten.contract.errors import BattenError
from batten.contract.outcomes import exit_code, outcome_of_error
from batten.serve.output import redact_for_people, say, warn
from batten.serve.words import redacting

_log = logging.getLogger("batten.cli")
_UNWRITTEN = (errno.EPIPE, errno.EBADF, errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO)
"""What printing raises; errors of files name them, and those of the store are typed."""
_RUN = "a run or session: its id, a UUID, a unique prefix, or `last`"
_JSON = "one object a line"
ASK_A_SERVICE = frozenset(
    ("runs", "show", "events", "artifacts", "diff", "requests", "answer", "cancel")
)
"""Commands that read or steer the runs of a service too: `--server`."""


def run_command(argv: list[str]) -> int:
    """Parse the flags of a command and run it; errors are reported on stderr."""
    redact_for_people.set(redacting(os.environ))
    try:
        _check_server(argv)
        options = command_parsers()[argv[0]].parse_args(argv[1:])
        log = None
        if options.debug or options.debug_file is not None:
            log = load("debugging").open_log(options, argv, os.environ)
    except SystemExit as left:  # argparse exits only after --help
        return int(left.code or 0)
    except BattenError as error:
        say(f"batten: {error}")
        return exit_code(outcome_of_error(error))
    code = _run(options)
    if log is not None:
        log.end(code)
    return code


def _check_server(argv: list[str]) -> None:
    """Raises `UsageError` if a command that asks no service is told which one to ask."""
    if argv[0] in ASK_A_SERVICE or not any(word.startswith("--server") for word in argv):
        return
    those = ", ".join(sorted(ASK_A_SERVICE))
    raise UsageError(
        f"`batten {argv[0]}` works on the home of this machine; --server is for -p, {those}"
    )


def _run(options: Namespace) -> int:
    try:
        module, _, function = options.run.partition(".")
        result = getattr(load(module), function)(options)
        code = asyncio.run(result) if asyncio.iscoroutine(result) else result
        sys.stdout.flush()
        return int(code)
    except OSError as error:
        _log.debug("it failed", exc_info=error)
        is_output = error.filename is None and error.errno in _UNWRITTEN
        warn(f"standard output is not complete: {error.strerror}" if is_output else str(error))
        return 1
    except KeyboardInterrupt:
        warn("interrupted")
        return exit_code("interrupted")
    except BattenError as error:
        _log.debug("it failed", exc_info=error)
        say(f"batten: {error}")
        return exit_code(outcome_of_error(error))


def command_parsers() -> dict[str, Parser]:
    """The parser of each command; `headless` and `conformance` have their own."""
    made: dict[str, Parser] = {}

    def command(name: str, run: str, about: str) -> Parser:
        """`run` is `module.function` in this package; the module is imported on use."""
        made[name] = added = Parser(prog=f"batten {name}", description=about)
        added.set_defaults(run=run)
        if name in ASK_A_SERVICE:
            add_server(added)
        add_debugging(added)
        return added

    _add_listing(command)
    _add_looking(command)
    _add_changing(command)
    _add_upkeep(command)
    _add_bundles(command)
    _add_answering(command)
    _add_keys(command)
    _add_sinks(command)
    _add_setup(command)
    add_decide(command)
    return made


def _add_choice(made: Parser, name: str, *choices: str) -> None:
    """One of these words. Errors name them, not the attribute."""
    made.add_argument(name, choices=choices, metavar=f"{{{','.join(choices)}}}")


def _add_listing(command: Callable[[str, str, str], Parser]) -> None:
    runs = command(
        "runs",
        "listing.list_runs",
        "List runs, newest first. A cost that ends in + lacks calls whose price is unknown.",
    )
    runs.add_argument("--json", action="store_true", help="one object a line; times in UTC")
    runs.add_argument("--status", type=states, metavar="STATES", help="of " + ", ".join(STATES))
    _add_period(runs)
    runs.add_argument(
        "--workspace", type=place, metavar="DIR", help="only the runs in this directory"
    )
    runs.add_argument("--model", metavar="[PROVIDER/]MODEL", help="only the runs of this model")
    runs.add_argument("--session", metavar="SESSION", help="only the runs of one session")
    runs.add_argument("--run", dest="run_ids", action="append", metavar="RUN", help="only this one")
    runs.add_argument("--grep", metavar="TEXT", help="only prompts with this text, in any case")
    runs.add_argument("--limit", type=at_least_0, default=50, metavar="N", help="default: 50")
    runs.add_argument("--after", metavar="RUN", help="go on after this run of the list")

    stats = command(
        "stats",
        "listing.print_stats",
        "Runs, model calls, tokens and cost by day, model and workspace. A run counts for the day"
        " it began; pruned sessions are included, deleted ones are not.",
    )
    stats.add_argument("--json", action="store_true", help="one object; days in UTC")
    _add_period(stats)


def _add_period(command: Parser) -> None:
    when = "2026-01-31, 2026-01-31T08:00, today, yesterday, or 12h, 7d, 2w for that long ago"
    command.add_argument("--since", type=since, metavar="TIME", help=f"begun then or later: {when}")
    command.add_argument("--until", type=until, metavar="TIME", help="begun before; a day counts")


def _add_upkeep(command: Callable[[str, str, str], Parser]) -> None:
    prune = command(
        "prune",
        "upkeep.prune_journal",
        "Remove sessions that have ended, and return their space to the disk. Sessions in use,"
        " with an unfinished run, or continued by a fork stay. Or remove the beginning of one"
        " run's events; a marker stays.",
    )
    prune.add_argument("--older-than", type=age, metavar="AGE", help="last used that long ago: 30d")
    prune.add_argument("--keep", type=at_least_0, metavar="N", help="the N last used stay")
    prune.add_argument(
        "--max-size", type=size, metavar="SIZE", help="the oldest, until all takes less: 2G"
    )
    prune.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    prune.add_argument("--json", action="store_true", help="one object")
    prune.add_argument("run_id", nargs="?", metavar="RUN", help=_RUN)
    prune.add_argument(
        "--before", type=at_least_0, metavar="SEQUENCE", help="remove the events of RUN below it"
    )

    delete = command(
        "delete",
        "upkeep.delete_one",
        "Remove a session with its runs and artifacts. Refused while a living process uses it.",
    )
    delete.add_argument("session", metavar="SESSION", help=_RUN)
    delete.add_argument("--yes", action="store_true", help="without asking")

    backup = command(
        "backup",
        "upkeep.back_up_home",
        "Copy the journal and its artifacts while others write. The copy is a home:"
        " BATTEN_HOME=COPY batten verify.",
    )
    backup.add_argument("file", metavar="FILE", help="a new directory, or a new .tar.gz file")
    backup.add_argument("--with-key", action="store_true", help="with the key of sealed bodies")


def _add_bundles(command: Callable[[str, str, str], Parser]) -> None:
    export = command(
        "export",
        "bundles.export_bundle",
        "Write a session to a file: its events byte for byte, their chain, and its artifacts.",
    )
    export.add_argument("session", metavar="SESSION", help=_RUN)
    export.add_argument(
        "-o", "--output", required=True, type=place, metavar="FILE", help="- for a pipe"
    )
    export.add_argument("--force", action="store_true", help="replace the file")
    export.add_argument(
        "--with-sealed", action="store_true", help="sealed bodies too, under a passphrase"
    )

    import_ = command(
        "import",
        "bundles.import_bundle",
        "Take a session from a file that `batten export` wrote, after checking all of it.",
    )
    import_.add_argument("file", metavar="FILE", help="the bundle; - for a pipe")
    import_.add_argument("--no-sealed", action="store_true", help="without what is sealed in it")
    import_.add_argument(
        "--max-size", type=size, default=8 << 30, metavar="SIZE", help="unpacked; default: 8G"
    )
    import_.add_argument("--json", action="store_true", help="one object")
    for made in (export, import_):
        made.add_argument(
            "--passphrase-file",
            metavar="FILE",
            help="its first line; else BATTEN_BUNDLE_PASSPHRASE, else a prompt",
        )


def _add_looking(command: Callable[[str, str, str], Parser]) -> None:
    show = command("show", "inspection.show_run", "A readable timeline of a run.")
    show.add_argument("run_id", metavar="RUN", help=_RUN)
    show.add_argument("--verbose", action="store_true", help="cut nothing")
    show.add_argument("--follow", action="store_true", help="go on with a run to its end")
    add_color(show)

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
    diff.add_argument("--proposed", action="store_true", help="what it proposes instead")
    diff.add_argument("--no-pager", action="store_true", help="write to the terminal directly")
    add_color(diff)

    revert = command(
        "revert", "changes.revert_run", "Undo a run's changes to files, all or nothing."
    )
    revert.add_argument("run_id", metavar="RUN", help=_RUN)
    revert.add_argument("paths", nargs="*", default=[], metavar="PATH", help="only these files")
    revert.add_argument("--reason", default="", metavar="TEXT", help="stored with the change")

    for name, about in (
        ("apply", "Make the changes to files that a run under review proposes, all or nothing."),
        ("reject", "Decide that the changes a run proposes are not made."),
    ):
        review = command(name, f"changes.{name}_run", about)
        review.add_argument("run_id", metavar="RUN", help=_RUN)
        review.add_argument("paths", nargs="*", default=[], metavar="PATH", help="only these files")
        review.add_argument("--reason", default="", metavar="TEXT", help="stored with the change")


def _add_answering(command: Callable[[str, str, str], Parser]) -> None:
    requests = command("requests", "answering.list_requests", "Questions that runs wait for.")
    requests.add_argument("--json", action="store_true", help=_JSON)
    requests.add_argument("run_id", nargs="?", metavar="RUN", help=f"{_RUN}; default: all")
    add_color(requests)

    answer = command(
        "answer", "answering.answer_request", "Answer a question; the first answer counts."
    )
    answer.add_argument(
        "request_id", metavar="REQUEST", help="its id, or a run with one question, or `last`"
    )
    _add_choice(answer, "decision", "allow", "deny")
    answer.add_argument(
        "--note", default="", metavar="TEXT", help="a comment, or the input asked for"
    )

    cancel = command(
        "cancel", "answering.cancel_run", "Ask a run to end. No call begins after that."
    )
    cancel.add_argument("run_id", metavar="RUN", help=_RUN)
    cancel.add_argument("--reason", default="", metavar="TEXT", help="stored with the request")

    annotate = command(
        "annotate",
        "annotating.annotate_run",
        "Add what another process knows about a run to its events.",
    )
    annotate.add_argument("run_id", metavar="RUN", help=_RUN)
    annotate.add_argument("type", metavar="TYPE", help="eval.scored, prompt_variant.selected, …")
    annotate.add_argument("data", metavar="DATA", help="the payload: a JSON object")

    scenario = command(
        "scenario", "scenario.run_scenario", "Check scripted scenarios, or run and judge them."
    )
    _add_choice(scenario, "action", "validate", "run")
    scenario.add_argument("paths", nargs="+", metavar="FILE")
    scenario.add_argument(
        "--workspace", type=place, metavar="DIR", help="default: the scenario's directory"
    )
    scenario.add_argument("--json", action="store_true", help=_JSON)
    scenario.add_argument("--junit", type=place, metavar="FILE", help="also write a JUnit report")


def _add_keys(command: Callable[[str, str, str], Parser]) -> None:
    keys = command(
        "keys",
        "keys.manage_keys",
        "Make, list, rotate or revoke API keys of the service. A new key is printed last, and only"
        " once.",
    )
    _add_choice(keys, "action", "create", "list", "revoke", "rotate")
    keys.add_argument(
        "name", nargs="?", metavar="NAME", help="who uses it; revoke and rotate: or its id"
    )
    keys.add_argument(
        "--scope",
        choices=("viewer", "operator", "admin"),
        help="what it may do: look; also start, steer and delete; also configure (operator)",
    )
    keys.add_argument(
        "--expires",
        type=ahead,
        metavar="WHEN",
        help="create and rotate: refuse it from then on: 90d, 2027-01-31; default: never, or as"
        " long as the one before",
    )
    keys.add_argument(
        "--overlap",
        type=duration,
        metavar="TIME",
        help="rotate: how long the old key still works: 1h, 7d, or 0s for not at all (24h)",
    )
    keys.add_argument("--json", action="store_true", help="one object a line")
    command(
        "token",
        "tokens.print_token",
        "Print the token of this home, which its services take in place of a key over TCP. Batten's"
        ' own commands find it; for others: -H "Authorization: Bearer $(batten token)".',
    )


def _add_sinks(command: Callable[[str, str, str], Parser]) -> None:
    sinks = command(
        "sinks",
        "sinks.manage_sinks",
        "Show what the event bus, webhooks and traces were told; tell a message again, or drop it."
        " `run` tells them until it is stopped; a service does that by itself.",
    )
    _add_choice(sinks, "action", "list", "dead", "log", "replay", "drop", "run")
    sinks.add_argument(
        "names",
        nargs="*",
        default=[],
        metavar="NAME|ID",
        help="a sink; replay, drop: or numbers of messages",
    )
    sinks.add_argument("--limit", type=at_least_0, default=50, metavar="N", help="default: 50")
    sinks.add_argument("--json", action="store_true", help=_JSON)
    sinks.add_argument("--settings", metavar="JSON|FILE", help="of `run`: settings beside files")
    sinks.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="HOST|RANGE",
        help="of `run`: where webhooks may go besides public addresses and sinks.allow",
    )
    sinks.add_argument(
        "--leave-with-stdin", action="store_true", help="of `run`: end when stdin is closed"
    )
    sinks.add_argument(
        "--since", metavar="INSTANT", help="of `run`: where new sinks begin; default: now"
    )

    smoke = command(
        "smoke",
        "sinks.smoke",
        "Publish one event to the event bus and read it back; or print the publisher's"
        " conformance fixture.",
    )
    _add_choice(smoke, "what", "event-bus", "publisher-fixture")
    smoke.add_argument("--url", metavar="URL", help="a NATS server, instead of the variables")
    smoke.add_argument("--json", action="store_true", help=_JSON)

    audit = command(
        "audit",
        "auditing.print_audit",
        "Who did what, the newest first: keys, runs, answers, policies, exports, removals."
        " `batten verify` checks that nothing of it was changed.",
    )
    audit.add_argument("--actor", default="", metavar="NAME", help="only what this one did")
    audit.add_argument("--action", default="", metavar="ACTION", help="only this: run.started, ...")
    audit.add_argument(
        "--resource", default="", metavar="KIND", help="only to these: key, run, ..."
    )
    audit.add_argument("--id", default="", metavar="ID", help="only to this one")
    audit.add_argument("--after", metavar="TIME", help="only after this ISO 8601 time")
    audit.add_argument("--before", metavar="TIME", help="only before it")
    audit.add_argument("--limit", type=at_least_0, default=50, metavar="N", help="default: 50")
    audit.add_argument("--json", action="store_true", help=_JSON)


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
