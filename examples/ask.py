"""Ask an agent, watch it work, and decide what it may do.

python examples/ask.py                                            no key, no network
python examples/ask.py --model anthropic/claude-sonnet-4-5 "Why does the build fail?"
"""

import argparse
import asyncio
from pathlib import Path

from batten.client import ApprovalAsked, Ended, TextDelta, ToolEnded, Worker

SCENARIO = Path(__file__).with_name("greeting.json")


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("prompt", nargs="?", default="Say good day.")
    parser.add_argument("--model", default=f"scripted/{SCENARIO}")
    parser.add_argument("--yes", action="store_true", help="allow every tool")
    options = parser.parse_args()
    async with (
        Worker.start(model=options.model, approvals="ask") as worker,
        worker.prompt(options.prompt) as run,
    ):
        async for event in run:
            match event:
                case TextDelta():
                    print(event.text, end="", flush=True)
                case ApprovalAsked():
                    question = f"\n{event.tool}: {event.summary}  allow? [y/N] "
                    if options.yes or await asyncio.to_thread(input, question) == "y":
                        await event.allow()
                    else:
                        await event.deny("the user said no")
                case ToolEnded():
                    print(f"\n[{event.tool} {event.summary}]")
                case Ended(result=result):
                    cost = "unknown" if result.cost_usd is None else f"${result.cost_usd:.4f}"
                    print(f"\n{result.outcome} in {result.duration_s:.1f} s, cost {cost}")
                    print(f"batten show {result.run_id}")
                case _:
                    pass


if __name__ == "__main__":
    asyncio.run(main())
