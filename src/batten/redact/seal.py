"""Sealing with a local key: data that must return unchanged is stored encrypted beside the journal.

The key is one file under the state directory and is never part of a bundle.
"""

import os
from typing import Self

from batten.contract.errors import Refused

_KEY_BYTES = 32
_NONCE_BYTES = 12
_VERSION = b"\x01"


class SealKey:
    """Seals and unseals. Sealed bytes open only with the same key and the same context."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        if len(key) != _KEY_BYTES:
            raise Refused(
                f"a seal key has {_KEY_BYTES} bytes, not {len(key)}", code="seal_unavailable"
            )
        self._key = key

    @classmethod
    def load(cls, home: str | os.PathLike[str]) -> Self:
        """The key in `<home>/seal.key`, created if missing. Safe for concurrent processes."""
        path = os.path.join(home, "seal.key")
        if not os.path.lexists(path):
            try:
                _create(path)
            except OSError as error:
                raise _unusable(path, error) from error
        return cls.find(home)

    @classmethod
    def find(cls, home: str | os.PathLike[str]) -> Self:
        """The key in `<home>/seal.key`; `Refused` if there is none. For data that is already
        sealed."""
        path = os.path.join(home, "seal.key")
        try:
            return cls(_read(path))
        except OSError as error:
            raise _unusable(path, error) from error

    def seal(self, data: bytes, context: bytes) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(_NONCE_BYTES)
        return _VERSION + nonce + AESGCM(self._key).encrypt(nonce, data, _VERSION + context)

    def unseal(self, sealed: bytes, context: bytes) -> bytes:
        """The original data; `Refused` if the key, the context or a single bit differs."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if not sealed:
            raise Refused(
                "sealed data is missing: the bundle of this session left it out",
                code="seal_unavailable",
            )
        body = sealed[1 + _NONCE_BYTES :]
        if sealed[:1] != _VERSION or len(body) < 16:
            raise Refused("these bytes were not sealed by this program", code="seal_unavailable")
        try:
            nonce = sealed[1 : 1 + _NONCE_BYTES]
            return AESGCM(self._key).decrypt(nonce, body, _VERSION + context)
        except InvalidTag:
            raise Refused(
                "sealed with another key, for another context, or damaged; it needs the seal.key"
                " of the home it was sealed in",
                code="seal_unavailable",
            ) from None


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(_KEY_BYTES + 1)


def _create(path: str) -> None:
    """Write a new key aside, then link it into place: the first writer wins, and no reader sees a
    partial key."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    aside = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(os.urandom(_KEY_BYTES))
            file.flush()
            os.fsync(descriptor)
        try:
            os.link(aside, path)
        except FileExistsError:
            return
        _sync_directory(os.path.dirname(path))
    finally:
        os.unlink(aside)


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unusable(path: str, error: OSError) -> Refused:
    return Refused(f"the seal key {path} cannot be used: {error.strerror}", code="seal_unavailable")
