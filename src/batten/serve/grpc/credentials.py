"""The observer's credential for a runtime: a minted token, else a fixed one, else a plain name."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from batten.contract.errors import BattenError
from batten.settings.control_plane import ControlPlaneSettings

_log = logging.getLogger("batten.observer")
_EARLY_S = 40.0
"""A token is minted anew so long before it ends: the runtime's clock may be ahead, calls last."""
_SHORTEST_S = 60
_AGAIN_S = 5.0
"""After a failure the auth service is left alone for so long."""
_LARGEST_ANSWER = 64 * 1024

Metadata = tuple[tuple[str, str], ...]


class Credentials(Protocol):
    async def metadata(self) -> Metadata:
        """What proves the caller's identity, for one call."""
        ...

    def refused(self) -> None:
        """The runtime did not take it: do not send the same again if there is another."""
        ...


class FixedCredentials:
    """A bearer token, or a name where a runtime in development takes any."""

    def __init__(self, *, bearer: str = "", name: str = "") -> None:
        self._metadata: Metadata = ()
        if bearer:
            self._metadata = (("authorization", f"Bearer {bearer}"),)
        elif name:
            self._metadata = (("x-macp-agent-id", name),)

    async def metadata(self) -> Metadata:
        return self._metadata

    def refused(self) -> None:
        pass


class _Minted(Struct, frozen=True):
    """The answer of the auth service."""

    token: str
    expires_in_seconds: float | None = None


class MintedCredentials:
    """A token of the auth service, kept until shortly before it ends; `otherwise` if it fails."""

    def __init__(
        self,
        settings: ControlPlaneSettings,
        otherwise: Credentials,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._otherwise = otherwise
        self._clock = clock
        self._token = ""
        self._good_until = 0.0
        self._not_before = 0.0
        self._minting = asyncio.Lock()

    async def metadata(self) -> Metadata:
        if token := await self._current():
            return (("authorization", f"Bearer {token}"),)
        return await self._otherwise.metadata()

    def refused(self) -> None:
        self._good_until = 0.0

    async def _current(self) -> str:
        """Calls that need a token at the same time share one request for it."""
        if self._clock() < self._good_until:
            return self._token
        async with self._minting:
            now = self._clock()
            if now < self._good_until or now < self._not_before:
                return self._token if now < self._good_until else ""
            try:
                minted = await self._mint()
            except (BattenError, msgspec.MsgspecError) as error:
                _log.warning("no token of the auth service, others are tried: %s", error)
                self._not_before = self._clock() + _AGAIN_S
                return ""
            lasts_s = minted.expires_in_seconds or self._settings.macp_auth_token_ttl_seconds
            self._token = minted.token
            self._good_until = self._clock() + max(_SHORTEST_S, lasts_s) - _EARLY_S
            return self._token

    async def _mint(self) -> _Minted:
        from batten.tools.outbound import Outbound

        settings = self._settings
        url = settings.macp_auth_service_url.rstrip("/")
        scopes = {"can_start_sessions": False, "is_observer": True}
        if settings.macp_auth_token_can_manage_registry:
            scopes["can_manage_mode_registry"] = True
        asked = {
            "sender": settings.macp_auth_token_sender,
            "ttl_seconds": settings.macp_auth_token_ttl_seconds,
            "scopes": scopes,
        }
        # The operator named this host, so it need not be a public one.
        answer = await Outbound((urlsplit(url).hostname or "",)).send(
            "POST",
            f"{url}/tokens",
            headers={"Content-Type": "application/json"},
            body=msgspec.json.encode(asked),
            deadline_s=settings.macp_auth_service_timeout_ms / 1000,
            max_bytes=_LARGEST_ANSWER,
        )
        if not 200 <= answer.status < 300:
            raise BattenError(f"{url}/tokens answered {answer.status} {answer.reason}")
        minted = msgspec.json.decode(answer.body, type=_Minted)
        if not minted.token.strip():
            raise BattenError(f"{url}/tokens answered without a token")
        return minted


def credentials_of(settings: ControlPlaneSettings) -> Credentials:
    """The chain that the settings tell: minted token, fixed token, name."""
    name = settings.runtime_dev_agent_id if settings.runtime_use_dev_header else ""
    fixed = FixedCredentials(bearer=settings.runtime_bearer_token, name=name)
    if settings.macp_auth_service_url:
        return MintedCredentials(settings, fixed)
    return fixed
