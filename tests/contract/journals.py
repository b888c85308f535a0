"""The golden journals beside this file, and where other parts of the repository are."""

from pathlib import Path

from batten.contract.envelope import Envelope, decode

ROOT = Path(__file__).resolve().parents[2]
GOLDEN: dict[str, list[bytes]] = {
    path.stem: path.read_bytes().splitlines()
    for path in sorted((Path(__file__).parent / "golden").glob("*.jsonl"))
}
"""Each journal by its name, as stored envelopes."""

OF_SESSIONS = ("session", "task")
"""Journals of a session's own stream, which is no run."""

LINES = [line for lines in GOLDEN.values() for line in lines]


def envelopes(name: str) -> list[Envelope]:
    return [decode(line) for line in GOLDEN[name]]
