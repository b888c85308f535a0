"""A pool of workers over a queue of prompts. A worker that dies is replaced.

    seq 1 20 | sed 's/^/Say good day to number /' | python examples/pool.py --workers 4

Prompts of one worker share a conversation. To keep them apart, start a worker for each prompt: that
takes a fraction of a second.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

from batten.client import Result, Worker, WorkerError, own_process
from batten.embedded import in_process

SCENARIO = Path(__file__).with_name("greeting.json")
PATIENCE_S = 600.0
MOST_DEATHS = 3
"""Workers that may die in a row on one prompt before it is given up."""

Start = Callable[[], AbstractAsyncContextManager[Worker]]
Report = Callable[[str, Result | WorkerError], None]


async def pool(prompts: Iterator[str], workers: int, start: Start, report: Report) -> None:
    """Work through the prompts; when this returns or raises, no worker is left."""
    jobs: asyncio.Queue[str | None] = asyncio.Queue(maxsize=2 * workers)
    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(work(jobs, start, report))
        while (prompt := await asyncio.to_thread(next, prompts, None)) is not None:
            await jobs.put(prompt)
        for _ in range(workers):
            await jobs.put(None)


async def work(jobs: asyncio.Queue[str | None], start: Start, report: Report) -> None:
    """Work on prompts until there are none left, replacing a worker that dies."""
    prompt: str | None = None
    deaths = 0
    while True:
        try:
            async with start() as worker:
                while True:
                    # After a worker died, its prompt is asked again from the beginning.
                    prompt = prompt or await jobs.get()
                    if prompt is None:
                        return
                    report(prompt, await worker.ask(prompt, within_s=PATIENCE_S))
                    prompt, deaths = None, 0
        except WorkerError as error:
            deaths += 1
            if deaths == MOST_DEATHS:
                prompt = prompt or await jobs.get()
                if prompt is None:
                    return
                report(prompt, error)
                prompt, deaths = None, 0


def show(prompt: str, result: Result | WorkerError) -> None:
    if isinstance(result, Result):
        print(f"{prompt}: {result.outcome}: {result.text} ({result.run_id})", flush=True)
    else:
        print(f"{prompt}: given up: {result}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default=f"scripted/{SCENARIO}")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--in-process", action="store_true")
    options = parser.parse_args()
    start = partial(
        Worker.start,
        model=options.model,
        approvals="allow",
        launch=in_process if options.in_process else own_process,
    )
    prompts = (line.strip() for line in sys.stdin if line.strip())
    asyncio.run(pool(prompts, options.workers, start, show))


if __name__ == "__main__":
    main()
