"""What holds for every test: no example fails for being slow, no signal is ignored, and a child
that nobody waited for names the test that started it.
"""

import gc
import os
import signal
import subprocess
import sys
import time
import warnings
from typing import Any, Protocol

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import examples

settings.register_profile(
    "unhurried",
    deadline=None,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unhurried")
# Started by nohup, or behind a shell's back, we would hand on that these signals are ignored, to
# programs that then ignore them.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class _NamedProcess(subprocess.Popen[Any]):
    """Knows its test: the warning about a child that still runs comes with the garbage collector,
    and so fails a later test.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self._started_by = os.environ.get("PYTEST_CURRENT_TEST", "no test")
        super().__init__(*args, **options)

    def __del__(self) -> None:
        super().__del__(_warn=self._warn)  # type: ignore[call-arg]

    def _warn(self, message: str, category: type[Warning], source: object) -> None:
        told = f"{message}: {self.args!r}, started by {self._started_by}"
        warnings.warn(told, category, stacklevel=2, source=source)


# Modules and tests stay to the end: to search them for garbage again and again was two fifths of
# the time that collecting them takes, in each worker.
gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()


_FAILED = os.environ.get("FAILED_TESTS_FILE")
"""The file in which `scripts/test.sh` finds the names of tests that failed."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and _FAILED and "PYTEST_XDIST_WORKER" not in os.environ:
        with open(_FAILED, "a") as file:
            file.write(f"{report.nodeid}\n")


setattr(subprocess, "Popen", _NamedProcess)  # noqa: B010  # asyncio starts processes with it too


class Tell(Protocol):
    """Says on the terminal what a campaign did, and how long it took."""

    def __call__(self, **figures: object) -> None: ...


@pytest.fixture
def tell(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Tell:
    began = time.monotonic()

    def told(**figures: object) -> None:
        said = {**figures, "seconds": round(time.monotonic() - began)}
        line = ", ".join(f"{name}: {value}" for name, value in said.items())
        with capsys.disabled():
            sys.stdout.write(f"\n{request.node.name}: {line}\n")

    return told
