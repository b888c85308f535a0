"""Golden transcripts: what print mode wrote, without what differs from run to run.

`BATTEN_WRITE_GOLDEN=1` writes them anew; look at the difference before you keep it.
"""

import os
import re
from pathlib import Path

import msgspec

from batten.protocols.json_line import encode
from tests.cli.invoking import Json, Shell

GOLDEN = Path(__file__).parent / "golden"
WRITE = bool(os.environ.get("BATTEN_WRITE_GOLDEN"))
PRICES = '{"as_of": "2026-02-03", "providers": {"anthropic": [[["=m"], 9999, ["1000", "2000"]]]}}'
"""Ten tokens in and five out cost two cents; the price of no other model is known."""


def set_prices(shell: Shell) -> None:
    (shell.stage.directory / "prices.json").write_text(PRICES)
    shell.set(BATTEN_PRICES=str(shell.stage.directory / "prices.json"))


def normalised(frame: Json, shell: Shell) -> Json:
    """Without what differs from run to run."""
    text = msgspec.json.encode(frame).decode()
    text = text.replace(str(shell.stage.directory), "/stage")
    text = re.sub(r"(chat|run|art)_[0-9A-Z]{26}", r"\1_ID", text)
    text = re.sub(r"Available tools: [a-z_, ]+", "Available tools: ALL", text)
    text = re.sub(r'"(retry_delay_ms|duration_ms)":\d+', r'"\1":0', text)
    made: Json = msgspec.json.decode(text)
    if made.get("subtype") == "init":
        made["pricing"] = {"as_of": "2026-02-03"}
        assert made.pop("sandbox")["layer"]
        made["tools"] = sorted({*made["tools"]} & {"bash", "agent", "acting", "todo_write"})
    return made


def golden(name: str) -> list[Json]:
    lines = (GOLDEN / f"{name}.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line) for line in lines]


def compare(name: str, frames: list[Json], shell: Shell) -> None:
    """Frames with the golden ones of this name."""
    shown = [normalised(frame, shell) for frame in frames]
    path = GOLDEN / f"{name}.jsonl"
    if WRITE:
        path.write_bytes(b"".join(map(encode, shown)))
    assert shown == golden(name)


def compare_text(name: str, text: bytes) -> None:
    """Plain output with the golden one of this name, byte for byte."""
    path = GOLDEN / f"{name}.txt"
    if WRITE:
        path.write_bytes(text)
    assert text == path.read_bytes()
