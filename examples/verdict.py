"""Ask for an answer of a type, with limits and rules, in a program without an event loop.

python examples/verdict.py                                        no key, no network
python examples/verdict.py --model anthropic/claude-sonnet-4-5 "Why does the build fail?"
"""

import argparse
from pathlib import Path

from msgspec import Struct

from batten.client.sync import Worker

SCENARIO = Path(__file__).with_name("verdict.json")


class Verdict(Struct):
    cause: str
    files: list[str]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("prompt", nargs="?", default="Why does the build fail?")
    parser.add_argument("--model", default=f"scripted/{SCENARIO}")
    options = parser.parse_args()
    with Worker.start(
        model=options.model,
        max_turns=20,
        max_budget_usd=0.50,
        allow=["bash(ls *)", "read_file"],
    ) as worker:
        result = worker.ask(options.prompt, schema=Verdict, within_s=600)
        if not result.completed:
            raise SystemExit(f"{result.outcome}: {result.message}")
        print(result.output.cause)
        for name in result.output.files:
            print(f"  {name}")
        for event in worker.history.events(result.run_id):
            print(f"{event.sequence:4} {event.type}")


if __name__ == "__main__":
    main()
