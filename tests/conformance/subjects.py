"""What the suites are run on: our own program, the same with a fault, and small scripts."""

import sys
from pathlib import Path

from batten.conformance.runner import Result, Runner
from batten.conformance.suites import checks

BATTEN = str(Path(sys.executable).with_name("batten"))
SPOILER = str(Path(__file__).with_name("spoiler.py"))
MODELS = {"heddle": "", "maestro": "anthropic/suite-model", "acp": "openai-chat/suite-model"}
PATIENCE_S = 60.0


def ours(protocol: str) -> list[str]:
    """Our program. Heddle's client names the model itself."""
    words = [BATTEN, "headless", "--protocol", protocol, "--sandbox", "none"]
    return [*words, "--model", MODELS[protocol]] if MODELS[protocol] else words


def spoiled(protocol: str, fault: str) -> list[str]:
    return [sys.executable, "-I", "-S", SPOILER, fault, *ours(protocol)]


async def judged(command: list[str], check_id: str, patience_s: float = PATIENCE_S) -> Result:
    """How one check goes."""
    protocol = check_id.partition(".")[0]
    runner = Runner(command, patience_s=patience_s, jobs=1)
    (result,) = await runner.run(checks(protocol, check_id))
    return result
