"""Runs checks on a command: a few at a time, each with a deadline and a finding."""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from tempfile import TemporaryDirectory
from typing import Literal

from msgspec import Struct

from batten.conformance.bench import Bench
from batten.conformance.check import Broken, Check, Level, NotOffered
from batten.conformance.subject import shown

Finding = Literal["passed", "failed", "skipped"]
_PREFIX = "conformance-"
"""Not our own prefix: our program sweeps up empty directories that have it."""
_LONGEST_REASON = 600
_WAITS_PER_CHECK = 4
"""The deadline of a check, in multiples of its patience."""


class Result(Struct, frozen=True, kw_only=True):
    id: str
    level: Level
    section: str
    says: str
    finding: Finding
    reason: str = ""
    seconds: float = 0.0
    transcript: tuple[str, ...] = ()
    """The last lines of the conversation, if the check failed."""


class Runner:
    def __init__(
        self,
        command: Sequence[str],
        *,
        patience_s: float,
        jobs: int,
        with_model: bool = True,
        tell: Callable[[Result], None] = lambda result: None,
    ) -> None:
        """`tell` is called with the result of each check, in order."""
        self._directory = ""
        self._command = command
        self._patience_s = patience_s
        self._jobs = jobs
        self._with_model = with_model
        self._tell = tell

    async def run(self, checks: Sequence[Check], gate: str = "") -> list[Result]:
        """Run the checks. If `gate` fails, the others are not tried: all would fail alike."""
        with TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as directory:
            self._directory = os.path.realpath(directory)
            return await self._run(checks, gate)

    async def _run(self, checks: Sequence[Check], gate: str) -> list[Result]:
        results: dict[int, Result] = {}
        waiting = list(enumerate(checks))
        if waiting and waiting[0][1].id == gate:
            results[0] = await self._judge(waiting.pop(0)[1])
            self._tell(results[0])
            if results[0].finding == "failed":
                why = f"{gate} failed"
                return [results[0], *(_result(check, "skipped", why) for _, check in waiting)]
        told = len(results)

        async def work() -> None:
            nonlocal told
            while waiting:
                place, check = waiting.pop(0)
                results[place] = await self._judge(check)
                while told in results:
                    self._tell(results[told])
                    told += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(self._jobs):
                group.create_task(work())
        return [results[place] for place in sorted(results)]

    async def _judge(self, check: Check) -> Result:
        if check.script and not self._with_model:
            return _result(check, "skipped", "it needs a model")
        begun = time.monotonic()
        async with asyncio.TaskGroup() as group:
            place = os.path.join(self._directory, check.id)
            bench = Bench(place, check, self._command, self._patience_s, group)
            try:
                finding, reason = await self._tried(check, bench)
            finally:
                await bench.close()
        reason = shown(reason, _LONGEST_REASON)
        lines = [line for subject in bench.subjects for line in subject.transcript()]
        return _result(
            check,
            finding,
            reason,
            seconds=round(time.monotonic() - begun, 3),
            transcript=tuple(lines) if finding == "failed" else (),
        )

    async def _tried(self, check: Check, bench: Bench) -> tuple[Finding, str]:
        limit = _WAITS_PER_CHECK * self._patience_s
        try:
            async with asyncio.timeout(limit):
                await bench.open()
                await check.run(bench)
        except NotOffered as not_offered:
            return "skipped", str(not_offered)
        except TimeoutError:
            return "failed", f"the conversation did not end within {limit:g} s"
        except OSError as error:
            return "failed", f"it could not be tried: {error}"
        except Broken as broken:
            if bench.model.missing:
                return "skipped", f"the model was offered no tool that can {bench.model.missing}"
            return "failed", f"{broken}{_model_hint(check, bench)}"
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
            # The message has a shape that the check did not foresee.
            return "failed", f"a message has another shape: {type(error).__name__}: {error}"
        return "passed", ""


def _model_hint(check: Check, bench: Bench) -> str:
    unasked = check.script and not bench.model.requests
    return " (the suite's model was not asked)" if unasked else ""


def _result(
    check: Check,
    finding: Finding,
    reason: str = "",
    seconds: float = 0.0,
    transcript: tuple[str, ...] = (),
) -> Result:
    return Result(
        id=check.id,
        level=check.level,
        section=check.section,
        says=check.says,
        finding=finding,
        reason=reason,
        seconds=seconds,
        transcript=transcript,
    )
