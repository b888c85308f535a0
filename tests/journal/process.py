"""Other processes that use a journal: started by the tests, killed by some of them."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from batten.contract.errors import BattenError
from batten.contract.ids import RunId
from batten.journal.contract import NewRun
from batten.journal.sqlite import SqliteJournal
from batten.journal.workers import this_worker
from tests.journal.given import FAILED, FINISHED, QUEUED, STARTED, started, text

ROOT = Path(__file__).parents[2]


def start(what: str, *arguments: str | Path) -> "subprocess.Popen[str]":
    """Run one function of this module in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.journal.process", what, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def write_many(home: str, count: str) -> None:
    """Wait for a line, then open the journal and append one by one to a run of its own."""
    await asyncio.to_thread(sys.stdin.readline)
    journal = SqliteJournal.open(home)
    lease = await started(journal)
    for number in range(int(count)):
        await journal.append(lease.run_id, [text(str(number))], fence=lease.fence)
    await journal.append(lease.run_id, [FINISHED], fence=lease.fence)
    journal.close()
    say(lease.run_id)


async def write_shared(home: str, run_id: str, fence: str, count: str) -> None:
    """Append to a run that other processes append to at the same time."""
    journal = SqliteJournal.open(home)
    for number in range(int(count)):
        await journal.append(run_id, [text(f"{os.getpid()} {number}")], fence=int(fence))
    journal.close()


async def write_forever(home: str, run_id: str) -> None:
    """Tell each fact's sequence after it is durable, until killed."""
    journal = SqliteJournal.open(home)
    new = NewRun(run_id=RunId(run_id), kind="agent_loop", worker_id=this_worker(), lease_s=600)
    lease, stored = await journal.create(new, [QUEUED, STARTED])
    assert lease is not None
    say(stored[-1].sequence, stored[-1].body.decode())
    while True:
        stored = await journal.append(run_id, [text("x" * 500)] * 3, fence=lease.fence)
        for item in stored:
            say(item.sequence, item.body.decode())


async def hold_lock(home: str) -> None:
    """Hold the lock between processes until told to stop."""
    import fcntl

    with open(os.path.join(home, "journal.db.lock"), "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        say("held")
        sys.stdin.readline()


async def fill_disk(home: str, limit: str) -> None:
    """Append until there is no room; then end the run. Says what became of each."""
    if int(limit):
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    journal = SqliteJournal.open(home)
    lease = await started(journal)
    count = 0
    try:
        while True:
            await journal.append(lease.run_id, [text("x" * 5000)], fence=lease.fence)
            count += 1
    except BattenError as error:
        say(error.code, lease.run_id, count)
    try:
        [ended] = await journal.append(lease.run_id, [FAILED], fence=lease.fence)
        say("ended", ended.sequence)
    except BattenError as error:
        say(error.code)
    journal.close()


def stop_at(module: ModuleType, name: str, *, after: bool = False) -> None:
    """Let a function say its name and wait to be killed, before or after its work."""
    work = getattr(module, name)

    def stop(*given: Any, **named: Any) -> None:
        if after:
            work(*given, **named)
        say(name)
        sys.stdin.readline()

    setattr(module, name, stop)


async def convert_until(home: str, step: str) -> None:
    """Open a journal of an older format, and stop within its conversion."""
    from batten.journal.sqlite import migrating

    stop_at(migrating, step)
    SqliteJournal.open(home)


async def fill(home: str, sessions: str) -> None:
    """Write ended sessions one by one; says each when it is durable."""
    from tests.journal.sessions import ended_session

    journal = SqliteJournal.open(home)
    for number in range(int(sessions)):
        say(await ended_session(journal, facts=20, body=b"%d " % number * 4000))
    journal.close()


async def prune_all(home: str) -> None:
    """Remove every ended session; says each that is gone."""
    from batten.journal.opening import removal_lock
    from batten.journal.removal import RemovalLimits

    with removal_lock(home):
        journal = SqliteJournal.open(home)
        await journal.remove_sessions(RemovalLimits(keep=0), lambda one, _: say(one.name))
        journal.close()
    say("done")


async def import_bundle(home: str, path: str) -> None:
    """Import a bundle, and stop before its facts are committed."""
    from batten.journal.bundles.checking import check
    from batten.journal.bundles.transfer import Source
    from batten.journal.sqlite import importing

    source = Source(path, 1 << 40, check(path, 1 << 40, None), None)
    journal = SqliteJournal.open(home)
    stop_at(importing, "_insert", after=True)
    await asyncio.to_thread(importing.import_session, journal, source, None)


async def back_up_until_bodies(home: str, target: str) -> None:
    """Make a backup, and stop before the bodies are copied."""
    from batten.journal.sqlite import backup

    stop_at(backup, "_add_bodies")
    backup.back_up(home, target, with_key=False)


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](*sys.argv[2:]))
