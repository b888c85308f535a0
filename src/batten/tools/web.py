"""The HTTP tools: `web_fetch`, `http_request` and `web_search`."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from batten.contract import facts
from batten.contract.envelope import timestamp
from batten.contract.errors import BattenError, CallerError, ProviderError
from batten.contract.facts.tool import ToolKind
from batten.models.contract import ToolSpec
from batten.redact.redactor import redacted_bytes
from batten.tools.contract import (
    Effect,
    Tool,
    ToolContext,
    ToolOutput,
    failure,
    object_schema,
)

if TYPE_CHECKING:
    from batten.tools.outbound import Answer, Outbound

FETCH_SECONDS = 10.0
REQUEST_SECONDS = 30.0
SEARCH_SECONDS = 15.0
MOST_CHARACTERS = 50_000
_FETCH_BYTES = 10 * 1024 * 1024
_REQUEST_BYTES = 256 * 1024
_QUICK_BYTES = 64 * 1024
"""The largest body that is parsed and redacted on the event loop."""
_MOST_HITS = 10

T = TypeVar("T")


def web_tools(environ: Mapping[str, str]) -> list[Tool]:
    """All three. `BATTEN_HTTP_ALLOW` lists hosts and ranges, separated by commas, that tools may
    reach although they are not public; `BATTEN_SEARCH_URL` is the search backend."""
    allow = [entry for entry in environ.get("BATTEN_HTTP_ALLOW", "").split(",") if entry]
    search_url = environ.get("BATTEN_SEARCH_URL") or None
    return [WebFetch(allow), HttpRequest(allow), WebSearch(search_url)]


class _Web:
    """Shares a lazily created `Outbound`."""

    effect: Effect = "network"

    def __init__(self, allow: list[str] | None = None) -> None:
        self._allow = allow or []
        self._out: Outbound | None = None

    def _outbound(self) -> "Outbound":
        if self._out is None:
            from batten.tools.outbound import Outbound

            self._out = Outbound(self._allow)
        return self._out

    def subject(self, arguments: dict[str, Any]) -> str:
        return str(arguments.get("url", ""))

    async def check_bounds(self, arguments: dict[str, Any]) -> None:
        """Raises `Refused` for an address that tools may not reach. Connecting checks it again."""
        if "url" in arguments:
            await self._outbound().check(str(arguments["url"]), within_s=FETCH_SECONDS)


class WebFetch(_Web):
    kind: ToolKind = "web_fetch"
    spec = ToolSpec(
        name="web_fetch",
        description="Fetch a page from the web and return its text.",
        parameters=object_schema(
            ["url"],
            url={"type": "string", "description": "http:// or https:// address"},
            prompt={"type": "string", "description": "What is looked for; not sent"},
        ),
    )

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        url = str(arguments["url"])
        if not url.startswith(("http://", "https://")):
            return failure("URL must start with http:// or https://", "invalid_url")
        headers = {"Accept": "text/html, text/plain, application/json, */*;q=0.5"}
        requested = facts.ToolWebFetchRequested(
            context.call_id, "GET", url, list(headers), tool_name=context.tool_name
        )
        try:
            answer = await self._outbound().send(
                "GET",
                url,
                headers=headers,
                deadline_s=FETCH_SECONDS,
                max_bytes=_FETCH_BYTES,
                check_redirect=context.check_redirect,
                before_sending=lambda: context.record(requested),
            )
        except BattenError as error:
            return _reported(error)
        body_id = await _keep_body(context, answer, "GET", headers)
        problem = _why_unreadable(answer)
        if problem:
            _record_answer(facts.ToolWebFetchResponse, context, answer, body_id)
            return failure(problem, "http_status" if answer.status >= 400 else "not_text")
        text = await _off_loop(answer, lambda: _clean_text(context, answer))
        text_id = await context.artifact(
            "fetched_resource",
            text.encode(),
            mime_type="text/plain; charset=utf-8",
            summary=context.redact(f"text of {answer.url}"),
            metadata=_resource(answer, "GET", headers),
        )
        more = {"extracted_text_artifact_id": text_id}
        _record_answer(facts.ToolWebFetchResponse, context, answer, body_id, **more)
        return ToolOutput(
            text=text[:MOST_CHARACTERS],
            summary=context.redact(f"{answer.status} {answer.url}"),
            artifact_id=text_id,
        )


def _why_unreadable(answer: "Answer") -> str:
    if not 200 <= answer.status < 300:
        return f"HTTP {answer.status} {answer.reason}".rstrip()
    kind = answer.content_type.lower()
    if kind and not any(word in kind for word in ("text", "json", "xml")):
        return f"Non-text content type: {answer.content_type}"
    return ""


class HttpRequest(_Web):
    kind: ToolKind = "http"
    spec = ToolSpec(
        name="http_request",
        description="Send an HTTP request and return the status and the body.",
        parameters=object_schema(
            ["url"],
            method={
                "type": "string",
                "enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"],
            },
            url={"type": "string", "description": "http:// or https:// address"},
            headers={"type": "object", "additionalProperties": {"type": "string"}},
            body={"type": "string"},
        ),
    )

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        method = str(arguments.get("method", "GET"))
        url = str(arguments["url"])
        headers: dict[str, str] = arguments.get("headers") or {}
        requested = facts.ToolHttpRequested(
            context.call_id, method, url, list(headers), tool_name=context.tool_name
        )
        try:
            answer = await self._outbound().send(
                method,
                url,
                headers=headers,
                body=str(arguments.get("body") or "").encode(),
                deadline_s=REQUEST_SECONDS,
                max_bytes=_REQUEST_BYTES,
                check_redirect=context.check_redirect,
                before_sending=lambda: context.record(requested),
            )
        except BattenError as error:
            return _reported(error)
        body_id = await _keep_body(context, answer, method, headers)
        _record_answer(facts.ToolHttpResponse, context, answer, body_id)
        first = f"HTTP {answer.status} {answer.reason}".rstrip()
        parts = [first, *(f"{name}: {answer.headers[name]}" for name in _shown(answer)), ""]
        # Redacted before it is cut: half a secret would not be found.
        text = await _off_loop(answer, lambda: context.redact(answer.text()))
        parts.append(text[:MOST_CHARACTERS])
        if answer.truncated:
            parts.append(f"[the body goes on after {_REQUEST_BYTES} bytes]")
        return ToolOutput(
            text=context.redact("\n".join(parts)),
            summary=context.redact(f"{first} from {answer.url}"),
            artifact_id=body_id,
        )


def _shown(answer: "Answer") -> list[str]:
    return [name for name in ("content-type", "location", "retry-after") if name in answer.headers]


class WebSearch(_Web):
    """Searches with the user's backend: a SearXNG instance, or any server that answers
    `?q=…&format=json` with `{"results": [{"title", "url", "content"}]}`."""

    kind: ToolKind = "web_search"
    spec = ToolSpec(
        name="web_search",
        description="Search the web; returns titles, addresses and excerpts.",
        parameters=object_schema(["query"], query={"type": "string", "minLength": 1}),
    )

    def __init__(self, url: str | None) -> None:
        # A configured backend is allowed, even if it is not public.
        super().__init__([_host(url)] if url else [])
        self._url = url

    def subject(self, arguments: dict[str, Any]) -> str:
        return str(arguments.get("query", ""))

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        if self._url is None:
            message = "no search backend is configured; set BATTEN_SEARCH_URL"
            await context.record(
                facts.ErrorToolUnavailable(self.spec.name, "no_provider_configured", message)
            )
            return failure(message, "tool_unavailable")
        from urllib.parse import urlencode

        query = str(arguments["query"])
        where = self._url.partition("?")[0]
        joined = "&" if "?" in self._url else "?"
        url = f"{self._url}{joined}{urlencode({'q': query, 'format': 'json'})}"
        requested = facts.ToolWebSearchRequested(
            context.call_id, "GET", where, [], query=query, tool_name=context.tool_name
        )
        try:
            answer = await self._outbound().send(
                "GET",
                url,
                deadline_s=SEARCH_SECONDS,
                max_bytes=_FETCH_BYTES,
                before_sending=lambda: context.record(requested),
            )
            shown = await _off_loop(answer, lambda: _hits(answer, context.redact))
        except BattenError as error:
            return _reported(error)
        body_id = await _keep_results(context, shown, query, _host(self._url))
        _record_answer(facts.ToolWebSearchResponse, context, answer, body_id, hits=shown)
        parts = [f"{hit['title']}\n{hit['url']}\n{hit['snippet']}".rstrip() for hit in shown]
        return ToolOutput(
            text="\n\n".join(parts) or "No results.",
            summary=f"{len(shown)} results",
            artifact_id=body_id,
        )


class _Results(Struct):
    results: list[dict[str, Any]]


def _hits(answer: "Answer", redact: Callable[[str], str]) -> list[dict[str, Any]]:
    if answer.status != 200:
        raise ProviderError(
            f"the search backend answered HTTP {answer.status}",
            code="http_status",
            status=answer.status,
        )
    try:
        found = msgspec.json.decode(answer.body, type=_Results).results
    except msgspec.DecodeError as error:
        raise ProviderError(
            f"the search backend did not answer with results as JSON: {error}", code="bad_answer"
        ) from error
    texts = [{name: hit.get(name) for name in ("title", "url", "content")} for hit in found]
    return [
        {
            "title": redact(str(text["title"] or "")),
            "url": redact(str(text["url"] or "")),
            "snippet": redact(str(text["content"] or ""))[:500],
        }
        for text in texts[:_MOST_HITS]
    ]


def _host(url: str) -> str:
    from urllib.parse import urlsplit

    try:
        return urlsplit(url).hostname or ""
    except ValueError as error:
        raise CallerError(f"BATTEN_SEARCH_URL is not a URL: {error}", code="config") from None


async def _keep_results(
    context: ToolContext, hits: list[dict[str, Any]], query: str, provider: str
) -> str:
    return await context.artifact(
        "search_results",
        msgspec.json.encode(hits),
        mime_type="application/json",
        summary=f"{len(hits)} results from {provider}",
        metadata={
            "query": query,
            "provider": provider,
            "result_count": len(hits),
            "fetched_at": timestamp(),
        },
    )


def _record_answer(
    fact: Callable[..., facts.Fact],
    context: ToolContext,
    answer: "Answer",
    body_id: str,
    **more: Any,
) -> None:
    context.record(
        fact(
            context.call_id,
            answer.status,
            answer.duration_ms,
            body_artifact_id=body_id,
            body_truncated=answer.truncated,
            tool_name=context.tool_name,
            **more,
        )
    )


async def _keep_body(
    context: ToolContext, answer: "Answer", method: str, sent: Mapping[str, str]
) -> str:
    return await context.artifact(
        "fetched_resource",
        await _off_loop(answer, lambda: redacted_bytes(answer.body, context.redact)),
        mime_type=answer.content_type or "application/octet-stream",
        summary=context.redact(f"{answer.status} {answer.url.partition('?')[0]}"),
        metadata=_resource(answer, method, sent),
    )


def _resource(answer: "Answer", method: str, sent: Mapping[str, str]) -> dict[str, Any]:
    """The metadata of a fetched body; of headers, only the names."""
    return {
        "url": answer.url,
        "method": method,
        "status": answer.status,
        "request_header_keys": list(sent),
        "response_header_keys": list(answer.headers),
        "duration_ms": answer.duration_ms,
        "truncated": answer.truncated,
    }


async def _off_loop(answer: "Answer", work: Callable[[], T]) -> T:
    """Run `work`, in a thread if the body is large, to keep the event loop responsive."""
    if len(answer.body) <= _QUICK_BYTES:
        return work()
    return await asyncio.to_thread(work)


def _clean_text(context: ToolContext, answer: "Answer") -> str:
    # Redacted before it is cut: half a secret would not be found.
    text = context.redact(answer.text())
    if "html" not in answer.content_type:
        return text
    from batten.redact.scan import MARK
    from batten.tools.readable import readable

    # The mark must not read as a tag. Redacted again afterwards: tags may have split a secret.
    page = text.replace(MARK, f"&lt;{MARK[1:-1]}&gt;")
    return context.redact(readable(page))


def _reported(error: BattenError) -> ToolOutput:
    timed_out = error.code == "timeout"
    return ToolOutput(
        text=f"Error: {error.message}",
        ending="timed_out" if timed_out else "failed",
        error_kind=error.code,
    )
