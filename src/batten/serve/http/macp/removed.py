"""The rows of endpoints that are gone: agents send to the runtime themselves."""

from collections.abc import Awaitable, Callable

from batten.serve.http.errors import HttpError
from batten.serve.http.macp.runs import run_id_of
from batten.serve.http.table import Call, Route

_INSTEAD = {
    "messages": (
        "send it with macp-sdk-python or macp-sdk-typescript: from macp_sdk import DecisionSession;"
        " DecisionSession(client, session_id=…).evaluate(...)"
    ),
    "signal": (
        "call session.signal(...) of macp-sdk-python or macp-sdk-typescript, or build an Envelope"
        " with messageType='Signal' and send it by Send"
    ),
    "context": (
        "build an envelope with messageType='ContextUpdate' by macp_sdk.build_envelope() of"
        " macp-sdk-python, and send it to the runtime"
    ),
}


def _gone(name: str) -> Callable[[Call], Awaitable[None]]:
    async def refuse(call: Call) -> None:
        run_id_of(call)  # an id that is none is refused first
        raise HttpError(
            "ENDPOINT_REMOVED",
            f"POST /runs/:id/{name} was removed: {_INSTEAD[name]}",
            status=410,
        )

    return refuse


ROUTES: tuple[Route, ...] = tuple(
    Route(
        method="POST",
        path=f"/runs/{{id}}/{name}",
        handler=_gone(name),
        summary=f"Removed: {text}",
        tag="runs",
        status=410,
    )
    for name, text in _INSTEAD.items()
)
