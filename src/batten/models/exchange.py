"""A model behind HTTP: one call from request to `Done`, the same for every provider.

The differences are in a `Dialect`: the address, the request body, and the reader of the response.
Reading ends in `Done` or in a `ProviderError`, never silently.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from batten.contract.errors import PeerError, ProviderError
from batten.contract.facts.assistant import Usage
from batten.contract.surrogates import decode_lone
from batten.contract.tracing import trace_context
from batten.models.address import Address
from batten.models.connection import Response
from batten.models.contract import Done, ModelEvent, ModelRequest
from batten.models.faults import broken, error_in, fault, from_answer, from_event
from batten.models.http import HttpClient, Timeouts
from batten.models.sse import Decoder, SseDecoder

if TYPE_CHECKING:
    from batten.models.pricing import Price

_MAX_ERROR_BODY = 256 * 1024
_LONGEST_PING = 80

T = TypeVar("T")


class Reader:
    """Folds the payloads of one response into events. Raises ProviderError."""

    def read(self, payload: bytes) -> Iterable[ModelEvent]:
        raise NotImplementedError

    def reported(self) -> Usage | None:
        """The usage that the provider has reported so far; None if it has reported none."""
        return None

    def finish(self) -> Iterable[ModelEvent]:
        """The body has ended: emit pending events, and `Done` if the answer is complete."""
        return ()


class Dialect:
    """The wire format of one provider's API, by default with server-sent events."""

    provider: str
    native_schema: bool
    headers: Mapping[str, str]
    _target: Address

    def target(self, model: str) -> Address:
        return self._target

    def body(self, request: ModelRequest) -> dict[str, Any]:
        raise NotImplementedError

    def decoder(self) -> Decoder:
        return SseDecoder()

    def reader(self) -> Reader:
        raise NotImplementedError


class HttpModel:
    """One model of a provider with an HTTP API."""

    def __init__(
        self,
        dialect: Dialect,
        name: str,
        environ: Mapping[str, str],
        *,
        timeouts: Timeouts | None = None,
        context_tokens: int | None = None,
    ) -> None:
        self.dialect = dialect
        self.provider = dialect.provider
        self.name = name
        self.native_schema = dialect.native_schema
        self._environ = environ
        self._context_tokens = context_tokens
        self._client = HttpClient(dialect.provider, environ, timeouts)
        self._encoder = msgspec.json.Encoder()

    @property
    def context_tokens(self) -> int:
        if self._context_tokens is None:
            from batten.models.pricing import context_tokens

            self._context_tokens = context_tokens(self.provider, self.name, self._environ)
        return self._context_tokens

    @property
    def price(self) -> "Price | None":
        from batten.models.pricing import price

        return price(self.provider, self.name, self._environ)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        dialect = self.dialect
        idle_s = self._client.timeouts.idle_s
        until = asyncio.get_running_loop().time() + self._client.timeouts.total_s
        body = self._encoder.encode(dialect.body(request))
        target = dialect.target(request.model)
        headers = {**dialect.headers, **trace_context()}
        async with self._client.post(target, headers, body) as response:
            kind = response.headers.get("content-type", "")
            if response.status != 200 or kind.startswith("application/json"):
                error_body = await response.read(_MAX_ERROR_BODY, idle_s)
                if response.status != 200:
                    raise from_answer(self.provider, response.status, response.headers, error_body)
                error = error_in(error_body)
                if error is None:
                    raise broken(self.provider, "the answer is one JSON object, not a stream")
                raise from_event(self.provider, error)
            decoder, reader = dialect.decoder(), dialect.reader()
            begun = done = False
            try:
                async for chunk in response.chunks(idle_s, until):
                    progress = False
                    for payload in decoder.receive(chunk):
                        progress = progress or not _only_keeps_alive(payload)
                        for event in reader.read(payload):
                            begun = True
                            if type(event) is Done:
                                response.ending = done = True
                                yield event
                                return
                            yield event
                    if progress:
                        response.mark_progress()
                for event in _rest(decoder, reader):
                    begun, done = True, type(event) is Done
                    yield event
                    if done:
                        return
            except PeerError as error:
                raise broken(self.provider, str(error)) from error
            except ProviderError as error:
                if begun or error.code != "model_protocol" or _is_stream(response):
                    raise
                raise fault(self.provider, "model_protocol", _no_answer(response)) from error
            finally:
                usage = None if done or request.report is None else reader.reported()
                if usage is not None and request.report is not None:
                    request.report(usage)
            if begun:
                cut = "the stream ended before the answer did"
                raise fault(self.provider, "model_unreachable", cut)
            raise fault(self.provider, "model_protocol", _no_answer(response))

    async def aclose(self) -> None:
        await self._client.aclose()


def _rest(decoder: Decoder, reader: Reader) -> Iterator[ModelEvent]:
    """The events that the end of the body completes."""
    for payload in decoder.finish():
        yield from reader.read(payload)
    yield from reader.finish()


def _is_stream(response: Response) -> bool:
    """Whether the headers of a response announce what was asked for."""
    is_plain = response.headers.get("content-encoding", "identity") == "identity"
    return is_plain and not response.headers.get("content-type", "").startswith("text/html")


def _no_answer(response: Response) -> str:
    """Why a response of status 200 had no event in it, as far as its headers tell."""
    if not response.taken:
        return "the answer is empty"
    encoding = response.headers.get("content-encoding", "identity")[:100]
    if encoding != "identity":
        return f"the answer is compressed ({encoding}), which was not asked for"
    kind = response.headers.get("content-type", "").partition(";")[0].strip()[:100]
    if kind in ("", "text/event-stream"):
        return "the stream ended before the answer did"
    return f"the answer is {kind}, not a stream of events; is the base address that of the API?"


def _only_keeps_alive(payload: bytes) -> bool:
    """Whether an event is only a keep-alive."""
    if len(payload) > _LONGEST_PING or not payload.startswith(b'{"type"'):
        return False
    return b'"ping"' in payload or b'"keepalive"' in payload


def read_payload(decoder: "msgspec.json.Decoder[T]", payload: bytes, provider: str) -> T:
    """Decode a payload; a mismatch is a protocol error."""
    try:
        return decoder.decode(payload)
    # Not only MsgspecError: bad UTF-8 and deep nesting raise the other two.
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        value = decode_lone(payload, pieces=True)
        if value is not None:
            # A half where no text belongs cannot even be named in the error.
            with suppress(msgspec.ValidationError, UnicodeEncodeError):
                return msgspec.convert(value, decoder.type)
        raise broken(provider, f"an event is not what it should be: {error}") from error
