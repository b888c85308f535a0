"""The first member of a bundle: the content that the others must have."""

import hashlib
import os
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from batten.contract.errors import BadBundle
from batten.contract.facts.run import RunKind
from batten.journal.contract import SessionRow
from batten.journal.rows import Base
from batten.redact.seal import SealKey

FORMAT = 1
MANIFEST = "bundle.json"
EVENTS = "events.jsonl"
LARGEST_MANIFEST = 64 * 1024 * 1024

Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Meta(ge=0, le=2**53)]


class BundledBase(Struct, frozen=True, kw_only=True):
    """The rows of pruned facts; the conversation, which is sealed, is a member of its own."""

    chain: Digest
    rows: Base
    has_state: bool = False
    lacks_state: bool = False
    """Whether the conversation was left out: such a session is not resumed."""


class BundledRun(Struct, frozen=True, kw_only=True):
    run_id: str
    kind: RunKind
    task_id: str | None
    created_at: str
    base_sequence: Count
    next_sequence: Count
    head: Digest
    """The hash of the chain's end."""
    base: BundledBase | None = None


class BundledBody(Struct, frozen=True, kw_only=True):
    sha256: Digest
    size: Count


class Passphrase(Struct, frozen=True, kw_only=True):
    """How the key of the sealed part follows from a passphrase: scrypt."""

    salt: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    cost: Annotated[int, Meta(ge=2**14, le=2**17)] = 2**15

    def key(self, passphrase: str) -> SealKey:
        salt = bytes.fromhex(self.salt)
        memory = 256 * self.cost * 8
        key = hashlib.scrypt(
            passphrase.encode(), salt=salt, n=self.cost, r=8, p=1, dklen=32, maxmem=memory
        )
        return SealKey(key)

    @classmethod
    def new(cls) -> "Passphrase":
        return cls(salt=os.urandom(16).hex())


class Manifest(Struct, frozen=True, kw_only=True):
    format: int
    program: str
    """The version of Batten that wrote it."""
    exported_at: str
    session: SessionRow
    runs: list[BundledRun]
    """In the order they were created."""
    bodies: list[BundledBody]
    """Members `bodies/<sha256>`, in order."""
    sealed: list[Digest]
    """Members `sealed/<sha256>`: the content of these bodies, encrypted with the passphrase."""
    left_out: list[Digest]
    """Sealed bodies that are not in the bundle."""
    passphrase: Passphrase | None = None
    events_bytes: Count


def body_member(digest: str) -> str:
    return f"bodies/{digest}"


def sealed_member(digest: str) -> str:
    return f"sealed/{digest}"


def state_member(number: int) -> str:
    """The sealed conversation of the run with this number."""
    return f"states/{number}"


def decode_manifest(data: bytes) -> Manifest:
    try:
        version = msgspec.json.decode(data, type=_Version).format
        if version > FORMAT:
            raise BadBundle(
                f"the bundle has format {version}, written by a newer Batten; this one reads"
                f" formats up to {FORMAT}",
                code="bundle_too_new",
            )
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadBundle(f"the bundle's {MANIFEST} cannot be read: {error}") from error


class _Version(Struct):
    format: int
