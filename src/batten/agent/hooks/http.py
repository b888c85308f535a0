"""A hook that is an address: receives its event by POST, replies with JSON.

Only addresses on the allow-list are requested, and redirects are not followed.
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import partial

from batten.agent.hooks.reply import LARGEST_ANSWER, HookReply, of_response
from batten.contract.errors import BattenError
from batten.contract.tracing import trace_context
from batten.models.address import Address, parse_address
from batten.models.http import HttpClient, Timeouts
from batten.settings.contract import HandlerConfig, HookLimits

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


async def send(
    handler: HandlerConfig,
    event: str,
    limits: HookLimits,
    payload: bytes,
    environ: Mapping[str, str],
) -> HookReply:
    """Send one request and read the reply; the caller sets the deadline."""
    try:
        target = parse_address(handler.url, what="address of the hook")
        if not is_allowed(target, limits.http_urls):
            return HookReply(failure="its address is not among those that hooks may be sent to")
        headers = {**trace_context(), **expanded(handler.headers, limits.http_env_vars, environ)}
    except (BattenError, _NotAllowed) as error:
        return HookReply(failure=str(error))
    patience = handler.timeout_s
    timeouts = Timeouts(
        connect_s=patience, first_byte_s=patience, idle_s=patience, total_s=patience
    )
    client = HttpClient("hook", environ, timeouts)
    try:
        async with client.post(target, headers, payload) as response:
            body = await response.read(LARGEST_ANSWER + 1, patience)
            status = response.status
    except BattenError as error:
        return HookReply(failure=f"it could not be asked: {error}")
    finally:
        await client.aclose()
    if len(body) > LARGEST_ANSWER:
        return HookReply(failure=f"it answered with more than {LARGEST_ANSWER} bytes")
    return of_response(event, status, body)


class _NotAllowed(Exception):
    """A header uses a variable that hooks may not read."""


def is_allowed(target: Address, globs: tuple[str, ...]) -> bool:
    """Whether a glob allows this address. A star in the host does not match into the path.

    A path with dot segments matches no glob with a path: a server may resolve it to another one.
    """
    place = f"{target.scheme}://{target.authority}"
    path = target.path or "/"
    for glob in globs:
        scheme, separator, rest = glob.partition("://")
        authority, slash, inner = rest.partition("/")
        if not separator or not _fits(place, f"{scheme}://{authority}".lower()):
            continue
        if not slash or (not _has_dots(path) and _fits(path, slash + inner)):
            return True
    return False


def _has_dots(path: str) -> bool:
    """Whether `.` or `..` is a segment, also in the encodings that servers decode."""
    plain = path.partition("?")[0].lower()
    for code, character in (("%2e", "."), ("%2f", "/"), ("%5c", "\\"), ("%3b", ";")):
        plain = plain.replace(code, character)
    parts = plain.replace("\\", "/").split("/")
    return any(part.partition(";")[0] in (".", "..") for part in parts)


def _fits(text: str, glob: str) -> bool:
    """Brackets belong to IPv6 addresses here; they are no character classes."""
    return fnmatchcase(text, glob.replace("[", "[[]"))


def expanded(
    headers: Mapping[str, str], allowed: tuple[str, ...], environ: Mapping[str, str]
) -> dict[str, str]:
    """Headers with `$NAME` and `${NAME}` replaced, for allowed variables only."""
    return {
        name: _VARIABLE.sub(partial(_value, name, allowed, environ), value)
        for name, value in headers.items()
    }


def _value(
    header: str, allowed: tuple[str, ...], environ: Mapping[str, str], found: "re.Match[str]"
) -> str:
    variable = found[1] or found[2]
    if variable not in allowed:
        raise _NotAllowed(f"its header {header} uses ${variable}, which hooks may not have")
    return environ.get(variable, "")


def shown(url: str) -> str:
    """The address without user and query, which may hold secrets."""
    try:
        target = parse_address(url)
    except BattenError:
        return "an address that is none"
    return f"{target.scheme}://{target.authority}{target.path.partition('?')[0]}"
