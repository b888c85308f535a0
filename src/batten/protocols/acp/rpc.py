"""JSON-RPC 2.0 as the protocol uses it: one message a line, requests both ways. Does no I/O."""

from typing import Any

import msgspec
from msgspec import Struct

from batten.contract import errors
from batten.protocols.json_line import Malformed, encode

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
CANCELLED = -32800
SIGN_IN_REQUIRED = -32000
NOT_FOUND = -32002

_MESSAGES = {
    PARSE_ERROR: "Parse error",
    INVALID_REQUEST: "Invalid request",
    METHOD_NOT_FOUND: "Method not found",
    INVALID_PARAMS: "Invalid params",
    INTERNAL_ERROR: "Internal error",
    CANCELLED: "Request cancelled",
    SIGN_IN_REQUIRED: "Authentication required",
    NOT_FOUND: "Resource not found",
}
_MOST_DETAILS = 8 * 1024

RequestId = int | str | None


class RpcError(errors.BattenError):
    """The error response to a request."""

    code = "rpc_error"

    def __init__(self, number: int, details: str, **data: Any) -> None:
        super().__init__(details or _MESSAGES.get(number, "Error"))
        self.number = number
        self.details = details[:_MOST_DETAILS]
        self.data = data


class Request(Struct, frozen=True):
    """A request of the other side, which waits for the response."""

    id: RequestId
    method: str
    params: Any


class Notification(Struct, frozen=True):
    method: str
    params: Any


class Response(Struct, frozen=True):
    """The response to a request of ours."""

    id: RequestId
    result: Any = None
    error: errors.BattenError | None = None


class Invalid(Struct, frozen=True):
    """An object that is no message: answered with an error and otherwise ignored."""

    id: RequestId
    error: RpcError


Incoming = Request | Notification | Response | Invalid


class _Failure(Struct):
    code: int
    message: str = ""


def parse(message: dict[str, Any]) -> Incoming:
    """Classify an object from the other side; never raises."""
    value: object = message.get("id")
    if isinstance(value, bool) or not isinstance(value, int | str | None):
        return _invalid(None, "an id is a number, a string or null")
    request_id: RequestId = value
    if "method" not in message:
        return _response(message, request_id)
    method = message["method"]
    if message.get("jsonrpc") != "2.0":
        return _invalid(request_id, 'jsonrpc is "2.0"')
    if not isinstance(method, str):
        return _invalid(request_id, "a method is a string")
    params: object = {} if message.get("params") is None else message["params"]
    if "id" not in message:
        return Notification(method, params)
    return Request(request_id, method, params)


def _response(message: dict[str, Any], request_id: RequestId) -> Incoming:
    failed = message.get("error")
    if "id" not in message or not message.keys() & {"result", "error"}:
        return _invalid(request_id, "a message has a method, or an id and a result or an error")
    if failed is None and "result" in message:
        return Response(request_id, result=message["result"])
    try:
        failed = msgspec.convert(failed, _Failure)
    except msgspec.ValidationError:
        failed = _Failure(INTERNAL_ERROR, "an error without a code")
    return Response(request_id, error=RpcError(failed.code, failed.message))


def _invalid(request_id: RequestId, problem: str) -> Invalid:
    return Invalid(request_id, RpcError(INVALID_REQUEST, problem))


def unread(malformed: Malformed) -> Response | Invalid:
    """Classify an unreadable line by its beginning: a response to end the wait for, or a message to
    refuse."""
    members, request_id = malformed.members, None
    value: object = members.get("id")
    if isinstance(value, int | str) and not isinstance(value, bool):
        request_id = value
    answers = "method" not in members and not members.keys().isdisjoint({"result", "error"})
    if answers and request_id is not None:
        return Response(
            request_id, error=errors.PeerError(f"its answer cannot be read: {malformed.problem}")
        )
    unreadable = malformed.fault not in ("not_an_object", "too_long")
    number = PARSE_ERROR if unreadable else INVALID_REQUEST
    return Invalid(request_id, RpcError(number, malformed.problem))


def result(request_id: RequestId, value: object) -> bytes:
    return encode({"jsonrpc": "2.0", "id": request_id, "result": value})


def failure(request_id: RequestId, error: RpcError) -> bytes:
    body: dict[str, Any] = {"code": error.number, "message": _MESSAGES.get(error.number, "Error")}
    data = {"details": error.details, **error.data} if error.details else error.data
    if data:
        body["data"] = data
    return encode({"jsonrpc": "2.0", "id": request_id, "error": body})


def request(request_id: RequestId, method: str, params: object) -> bytes:
    return encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def notification(method: str, params: object) -> bytes:
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


def rpc_error(error: errors.BattenError) -> RpcError:
    """The only place where our errors become the protocol's."""
    match error:
        case RpcError():
            return error
        case errors.NotFound():
            return RpcError(NOT_FOUND, str(error), code=error.code)
        case errors.Conflict():
            return RpcError(INVALID_REQUEST, str(error), code=error.code)
        case errors.NoCredentials():
            return RpcError(SIGN_IN_REQUIRED, str(error), code=error.code)
        case errors.CallerError() | errors.PeerError():
            return RpcError(INVALID_PARAMS, str(error), code=error.code)
        case _:
            return RpcError(INTERNAL_ERROR, str(error), code=error.code)
