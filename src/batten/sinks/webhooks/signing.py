"""Signatures: as Standard Webhooks and as the control plane's header spell them."""

import base64
import binascii
import hmac
from collections.abc import Sequence
from hashlib import sha256

_PREFIX = "whsec_"


def key_of(secret: str) -> bytes:
    """The key of a secret: decoded after `whsec_`, else the bytes of the text."""
    if secret.startswith(_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except binascii.Error:
            pass
    return secret.encode()


def signature_headers(
    secrets: Sequence[str], message_id: str, seconds: int, body: bytes
) -> dict[str, str]:
    """The headers that prove who sent a body, and when. Each secret signs."""
    signed = b".".join((message_id.encode(), str(seconds).encode(), body))
    standard = " ".join(
        "v1," + base64.b64encode(hmac.digest(key_of(one), signed, sha256)).decode()
        for one in secrets
    )
    headers = {
        "webhook-id": message_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": standard,
    }
    names = ("X-MACP-Signature", "X-MACP-Signature-Previous")
    for name, secret in zip(names, secrets, strict=False):
        headers[name] = hmac.digest(secret.encode(), body, sha256).hex()
    return headers
