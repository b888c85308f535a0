"""Batten inside the program that embeds it.

`Worker.start(launch=in_process)` is a worker without a process of its own, as quick as a call. A
process is the usual place for one, and the safer: what takes it down does not take the embedder
down. `hosted` is a session that any number of connections share.
"""

from batten.cli.embedding import in_process
from batten.cli.hosted import hosted
from batten.protocols.maestro.hosted import (
    AskedCapabilities,
    ConnectAsk,
    Envelope,
    HeartbeatEnvelope,
    MessageEnvelope,
    ResetEnvelope,
    SnapshotEnvelope,
    SubscribeAsk,
)
from batten.runner.identity import Identity
from batten.runner.request import DrainRequest

__all__ = [
    "AskedCapabilities",
    "ConnectAsk",
    "DrainRequest",
    "Envelope",
    "HeartbeatEnvelope",
    "Identity",
    "MessageEnvelope",
    "ResetEnvelope",
    "SnapshotEnvelope",
    "SubscribeAsk",
    "hosted",
    "in_process",
]
