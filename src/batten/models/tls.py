"""TLS contexts for model calls, loading certificates off the critical path.

OpenSSL reads a directory of hashed certificates one file at a time when a handshake needs it (1
ms); a bundle takes 40 ms to parse and is read in a thread.
"""

import asyncio
import os
import ssl
from collections.abc import Mapping

from batten.contract.errors import CallerError

_contexts: dict[tuple[str, str], ssl.SSLContext] = {}


async def client_context(environ: Mapping[str, str]) -> ssl.SSLContext:
    """The context for this environment's certificates; created once per process."""
    wanted = (environ.get("SSL_CERT_FILE", ""), environ.get("SSL_CERT_DIR", ""))
    context = _contexts.get(wanted)
    if context is None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.set_alpn_protocols(["http/1.1"])
        await _load(context, *wanted)
        _contexts[wanted] = context
    return context


async def _load(context: ssl.SSLContext, file: str, directory: str) -> None:
    if not file and not directory:
        file, directory = _system_certificates()
    try:
        if directory:
            context.load_verify_locations(capath=directory)
        if file:
            await asyncio.to_thread(context.load_verify_locations, cafile=file)
    except (OSError, ssl.SSLError) as error:
        raise CallerError(
            f"the certificates in {file or directory} cannot be read ({error}); "
            "SSL_CERT_FILE is a PEM file, SSL_CERT_DIR a directory of hashed ones",
            code="config",
        ) from error
    if not file and not directory:
        await asyncio.to_thread(context.load_default_certs)


def _system_certificates() -> tuple[str, str]:
    """The system's bundle or directory: one of the two, or neither."""
    paths = ssl.get_default_verify_paths()
    if paths.capath and _is_hashed(paths.capath):
        return "", paths.capath
    if paths.cafile:
        return paths.cafile, ""
    return _packaged_bundle(), ""


def _is_hashed(directory: str) -> bool:
    with os.scandir(directory) as entries:
        return any(entry.name.endswith(".0") for entry in entries)


def _packaged_bundle() -> str:
    try:
        import certifi
    except ImportError:
        return ""
    return certifi.where()
