"""Where the tool servers of tasks may be: at public addresses, or where the service allows."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import UNSET

from batten.contract.errors import CallerError, ProviderError, Refused
from batten.contract.facts.task import TaskCreated, TaskServer

_PORTS = {"http": 80, "https": 443}


async def check_addresses(task: TaskCreated, environ: Mapping[str, str]) -> None:
    """Raise `CallerError` if a client of the service has named a server inside our network.

    Otherwise whoever may create tasks could reach what only this machine reaches.
    """
    servers = [] if task.mcp_servers is UNSET else task.mcp_servers
    for server in servers:
        if server.url is not UNSET:
            await _check(server, server.url, environ)


async def _check(server: TaskServer, url: str, environ: Mapping[str, str]) -> None:
    from batten.tools.addresses import Allowed
    from batten.tools.guard import permitted_addresses

    address = urlsplit(url)
    port = address.port or _PORTS[address.scheme]
    allowed = Allowed(environ.get("BATTEN_HTTP_ALLOW", "").split(","))
    try:
        await permitted_addresses(allowed, address.hostname or "", port)
    except Refused as error:
        raise CallerError(f"mcp_servers[{server.name}].url: {error}", code=error.code) from error
    except ProviderError:
        return  # no such name: connecting to it will say so
