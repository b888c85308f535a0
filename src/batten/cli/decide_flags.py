"""The flags of `batten decide`."""

from collections.abc import Callable

from batten.cli.arguments import add_color, at_least_0, seconds
from batten.cli.parsing import Parser, place


def add_decide(command: Callable[[str, str, str], Parser]) -> None:
    decide = command(
        "decide",
        "decide.decide",
        "Let a panel of agents decide a question under a policy. Exit codes: 0 approved, 3"
        " declined, 4 no decision; others as everywhere.",
    )
    decide.add_argument("question", metavar="QUESTION")
    decide.add_argument(
        "--agents",
        required=True,
        metavar="NAME[=MODEL],...",
        help="who decides; each may have a model of its own",
    )
    decide.add_argument(
        "--connected",
        metavar="NAME,...",
        help="programs that decide with them, connected over gRPC as these senders",
    )
    decide.add_argument(
        "--bind", metavar="HOST:PORT", help="where they connect; default: 127.0.0.1:50051"
    )
    decide.add_argument("--tokens", metavar="FILE", help="JSON: their tokens, as of batten runtime")
    decide.add_argument("--policy", metavar="FILE", help="a policy; default: the chair commits")
    decide.add_argument(
        "--mode",
        choices=("decision", "quorum", "proposal", "multi_round"),
        help="how they decide; default: the mode of the policy, or decision",
    )
    decide.add_argument("--model", metavar="PROVIDER/MODEL", help="of agents that name none")
    decide.add_argument(
        "--roles", metavar="FILE", help='JSON: {"NAME": "what it cares for", ...}; or a model too'
    )
    decide.add_argument("--about", metavar="FILE", help="a text they decide about; - for stdin")
    decide.add_argument(
        "--apply", metavar="RUN", help="show them what this run proposes, and make it if approved"
    )
    decide.add_argument(
        "--workspace", type=place, metavar="DIR", help="what they may read; default: here"
    )
    decide.add_argument(
        "--timeout", type=seconds, default=600.0, metavar="S", help="for all of it (600)"
    )
    decide.add_argument(
        "--rounds", type=at_least_0, default=8, metavar="N", help="turns of each agent (8)"
    )
    decide.add_argument("--bare", action="store_true", help="read no settings files")
    decide.add_argument("--verbose", action="store_true", help="show whole messages")
    decide.add_argument("--json", action="store_true", help="one object a line, the result last")
    add_color(decide)
