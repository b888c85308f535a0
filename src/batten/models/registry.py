"""Models by name: `provider/model` to an adapter, with addresses and keys from the environment.

An adapter is imported when one of its models is opened.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from batten.contract.errors import CallerError, NoCredentials
from batten.models.contract import Model

if TYPE_CHECKING:
    from batten.models.http import Timeouts

_ALIASES = {"gemini": "google", "claude": "anthropic", "responses": "openai"}

_PREFIXES = (
    ("claude-", "anthropic"),
    ("gpt-", "openai"),
    ("chatgpt-", "openai"),
    ("codex-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("gemini-", "google"),
)


class ChatServer(Struct, frozen=True):
    """A server that speaks Chat Completions."""

    provider: str
    """The name used in price tables."""
    base: str
    base_variable: str
    key_variable: str
    native_schema: bool = True


_CHAT_SERVERS = {
    "openai-chat": ChatServer(
        "openai", "https://api.openai.com/v1", "OPENAI_BASE_URL", "OPENAI_API_KEY"
    ),
    "openrouter": ChatServer(
        "openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_BASE_URL", "OPENROUTER_API_KEY"
    ),
    "groq": ChatServer(
        "groq", "https://api.groq.com/openai/v1", "GROQ_BASE_URL", "GROQ_API_KEY", False
    ),
    "deepseek": ChatServer(
        "deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_BASE_URL", "DEEPSEEK_API_KEY", False
    ),
    "xai": ChatServer("x-ai", "https://api.x.ai/v1", "XAI_BASE_URL", "XAI_API_KEY"),
    "compat": ChatServer("compat", "", "COMPAT_BASE_URL", "COMPAT_API_KEY", False),
}


class ProviderPlace(Struct, frozen=True):
    """Where a provider is reached. Any one of the variables is enough."""

    provider: str
    prices: str
    """The name used in price tables."""
    base: str
    """The usual address; empty if there is none."""
    base_variables: tuple[str, ...]
    key_variables: tuple[str, ...] = ()

    def key_variable(self, environ: Mapping[str, str]) -> str | None:
        """The variable that holds the key."""
        return next((name for name in self.key_variables if environ.get(name, "").strip()), None)

    def base_variable(self, environ: Mapping[str, str]) -> str | None:
        """The variable that sets another address."""
        return next((name for name in self.base_variables if environ.get(name, "").strip()), None)


_PLACES = (
    ProviderPlace(
        "anthropic",
        prices="anthropic",
        base="https://api.anthropic.com",
        base_variables=("ANTHROPIC_BASE_URL",),
        key_variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    ),
    ProviderPlace(
        "openai",
        prices="openai",
        base="https://api.openai.com/v1",
        base_variables=("OPENAI_BASE_URL",),
        key_variables=("OPENAI_API_KEY",),
    ),
    ProviderPlace(
        "google",
        prices="google",
        base="https://generativelanguage.googleapis.com",
        base_variables=("GOOGLE_GEMINI_BASE_URL",),
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    ),
    ProviderPlace(
        "ollama", prices="ollama", base="", base_variables=("OLLAMA_BASE_URL", "OLLAMA_HOST")
    ),
)

PROVIDERS = ("anthropic", "openai", "google", "ollama", "scripted", *_CHAT_SERVERS)


def split_name(name: str, also: Collection[str] = ()) -> tuple[str, str]:
    """Split a name into provider and model; the prefix of a bare model name gives its provider.

    `also` are providers of other packages.
    """
    provider, slash, model = name.strip().partition("/")
    if not slash:
        model = provider
        provider = next((owner for prefix, owner in _PREFIXES if model.startswith(prefix)), "")
    provider = _ALIASES.get(provider, provider)
    known = (*PROVIDERS, *also)
    if provider not in known or not model:
        raise CallerError(
            f"no model {name!r}; a model is named PROVIDER/MODEL, where PROVIDER is one of "
            f"{', '.join(known)}, for example anthropic/claude-sonnet-4-5",
            code="config",
        )
    return provider, model


def is_known(provider: str) -> bool:
    """Whether a provider is one of our own, by any of its names."""
    return _ALIASES.get(provider, provider) in PROVIDERS


def priced_name(name: str) -> tuple[str, str]:
    """The provider and model under which price tables list a model."""
    provider, model = split_name(name)
    server = _CHAT_SERVERS.get(provider)
    return (provider if server is None else server.provider), model


def has_place(provider: str, environ: Mapping[str, str]) -> bool:
    """Whether the environment sets an address or key for this provider."""
    place = places().get(_ALIASES.get(provider, provider))
    return place is not None and bool(place.key_variable(environ) or place.base_variable(environ))


def places() -> dict[str, ProviderPlace]:
    """Every provider that is reached over a network."""
    servers = (
        ProviderPlace(
            name, server.provider, server.base, (server.base_variable,), (server.key_variable,)
        )
        for name, server in _CHAT_SERVERS.items()
    )
    return {place.provider: place for place in (*_PLACES, *servers)}


def open_model(
    name: str, environ: Mapping[str, str], *, timeouts: "Timeouts | None" = None
) -> Model:
    """Open a model. Raises CallerError (`config`) if something is missing or wrong."""
    provider, model = split_name(name)
    if provider == "scripted":
        from batten.models.scripted import open_scripted

        return open_scripted(model)

    from batten.models.exchange import Dialect, HttpModel

    dialect: Dialect
    context_tokens: int | None = None
    match provider:
        case "anthropic":
            from batten.models.anthropic import AnthropicDialect

            token = environ.get("ANTHROPIC_AUTH_TOKEN", "").strip()
            base, key = _place(
                environ,
                "https://api.anthropic.com",
                "ANTHROPIC_BASE_URL",
                ("ANTHROPIC_API_KEY",),
                optional=bool(token),
            )
            dialect = AnthropicDialect(model, base, key=key, token=token)
        case "openai":
            from batten.models.openai_responses import ResponsesDialect

            base, key = _place(
                environ, "https://api.openai.com/v1", "OPENAI_BASE_URL", ("OPENAI_API_KEY",)
            )
            dialect = ResponsesDialect(base, key=key)
        case "google":
            from batten.models.google import GoogleDialect

            base, key = _place(
                environ,
                "https://generativelanguage.googleapis.com",
                "GOOGLE_GEMINI_BASE_URL",
                ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            )
            dialect = GoogleDialect(model, base, key=key)
        case "ollama":
            from batten.models.ollama import CONTEXT_TOKENS, OllamaDialect

            context_tokens = _context_length(environ) or CONTEXT_TOKENS
            dialect = OllamaDialect(ollama_base(environ), context_tokens=context_tokens)
        case _:
            from batten.models.openai_chat import ChatDialect

            server = _CHAT_SERVERS[provider]
            base, key = _place(environ, server.base, server.base_variable, (server.key_variable,))
            dialect = ChatDialect(
                server.provider,
                base,
                key=key,
                native_schema=server.native_schema,
                headers=_attribution(environ) if provider == "openrouter" else {},
            )
    return HttpModel(dialect, model, environ, timeouts=timeouts, context_tokens=context_tokens)


def _attribution(environ: Mapping[str, str]) -> dict[str, str]:
    """The application's name for OpenRouter, if both variables are set."""
    referer = environ.get("OPENROUTER_REFERER", "").strip()
    title = environ.get("OPENROUTER_TITLE", "").strip()
    return {"http-referer": referer, "x-title": title} if referer and title else {}


def _place(
    environ: Mapping[str, str],
    base: str,
    base_variable: str,
    key_variables: tuple[str, ...],
    *,
    optional: bool = False,
) -> tuple[str, str]:
    """Base address and key. With a custom address the key is optional."""
    own = environ.get(base_variable, "").strip()
    key = next((value for name in key_variables if (value := environ.get(name, "").strip())), "")
    if not own and not base:
        raise CallerError(
            f"set {base_variable} to the address of the server, for example "
            "http://localhost:8000/v1",
            code="config",
        )
    if not key and not own and not optional:
        raise NoCredentials(f"set {' or '.join(key_variables)} to your API key")
    return own or base, key


def ollama_base(environ: Mapping[str, str]) -> str:
    """`OLLAMA_HOST` as Ollama's own client reads it: scheme and port may be missing."""
    base = environ.get("OLLAMA_BASE_URL", "").strip()
    if base:
        return base
    host = environ.get("OLLAMA_HOST", "").strip()
    if "://" not in host:
        place = host or "127.0.0.1"
        if place.startswith(":"):
            place = f"127.0.0.1{place}"
        has_port = "]:" in place if place.startswith("[") else ":" in place
        host = f"http://{place}" if has_port else f"http://{place}:11434"
    # A server configured to listen on all interfaces is reached by loopback.
    return host.replace("://0.0.0.0", "://127.0.0.1", 1)


def _context_length(environ: Mapping[str, str]) -> int:
    text = environ.get("OLLAMA_CONTEXT_LENGTH", "").strip()
    return int(text) if text.isascii() and text.isdigit() else 0
