"""What holds for every test: no example fails for being slow, and no signal is ignored."""

import signal
import sys
import time
from typing import Protocol

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
