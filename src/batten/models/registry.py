"""Models by name: `provider/model` to an adapter, with addresses and keys from the environment.

An adapter is imported when one of its models is opened.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from batten.contract.errors import CallerError, NoCredentials, UnknownModel
from batten.models.contract import Model
from batten.models.scenario_place import check_place

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


class ProviderPlace(Struct, frozen=True, kw_only=True):
    """Where a provider is reached. Any one of the variables of a kind is enough."""

    provider: str
    base: str = ""
    """The usual address; empty if there is none."""
    base_variables: tuple[str, ...]
    keys: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    """Variables for what takes the place of a key."""
    native_schema: bool = True

    @property
    def key_variables(self) -> tuple[str, ...]:
        return (*self.keys, *self.tokens)

    def key_variable(self, environ: Mapping[str, str]) -> str | None:
        """The variable that holds the key."""
        return next((name for name in self.key_variables if environ.get(name, "").strip()), None)

    def base_variable(self, environ: Mapping[str, str]) -> str | None:
        """The variable that sets another address."""
        return next((name for name in self.base_variables if environ.get(name, "").strip()), None)


def _place(
    provider: str, base: str, *, prefix: str = "", native_schema: bool = True
) -> ProviderPlace:
    """A provider with one variable for its address and one for its key."""
    prefix = prefix or provider.upper()
    return ProviderPlace(
        provider=provider,
        base=base,
        base_variables=(f"{prefix}_BASE_URL",),
        keys=(f"{prefix}_API_KEY",),
        native_schema=native_schema,
    )


_OWN = (
    ProviderPlace(
        provider="anthropic",
        base="https://api.anthropic.com",
        base_variables=("ANTHROPIC_BASE_URL",),
        keys=("ANTHROPIC_API_KEY",),
        tokens=("ANTHROPIC_AUTH_TOKEN",),
    ),
    _place("openai", "https://api.openai.com/v1"),
    ProviderPlace(
        provider="google",
        base="https://generativelanguage.googleapis.com",
        base_variables=("GOOGLE_GEMINI_BASE_URL",),
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    ),
    ProviderPlace(provider="ollama", base_variables=("OLLAMA_BASE_URL", "OLLAMA_HOST")),
)
_CHAT = (  # servers that speak Chat Completions
    _place("openai-chat", "https://api.openai.com/v1", prefix="OPENAI"),
    _place("openrouter", "https://openrouter.ai/api/v1"),
    _place("groq", "https://api.groq.com/openai/v1", native_schema=False),
    _place("deepseek", "https://api.deepseek.com/v1", native_schema=False),
    _place("xai", "https://api.x.ai/v1"),
    _place("compat", "", native_schema=False),
    ProviderPlace(
        provider="evalops",
        base_variables=("MAESTRO_LLM_GATEWAY_URL",),
        keys=("MAESTRO_LLM_GATEWAY_TOKEN", "MAESTRO_EVALOPS_ACCESS_TOKEN"),
        native_schema=False,
    ),
)

PLACES = {place.provider: place for place in (*_OWN, *_CHAT)}
"""Every provider that is reached over a network."""
PROVIDERS = (*(one.provider for one in _OWN), "scripted", *(one.provider for one in _CHAT))


def split_name(name: str, also: Collection[str] = ()) -> tuple[str, str]:
    """Split a name into provider and model; the prefix of a bare model name gives its provider.

    `also` are providers of other packages.
    """
    provider, slash, model = name.strip().partition("/")
    if not slash:
        model = provider
        provider = next((owner for prefix, owner in _PREFIXES if model.startswith(prefix)), "")
    provider = full_provider(provider)
    known = (*PROVIDERS, *also)
    if provider not in known or not model:
        raise UnknownModel(
            f"no model {name!r}; a model is named PROVIDER/MODEL, where PROVIDER is one of "
            f"{', '.join(known)}, for example anthropic/claude-sonnet-4-5"
        )
    if provider == "scripted":
        check_place(model)
    return provider, model


def provider_named(name: str, also: Collection[str] = ()) -> str:
    """A provider's own name; `also` are providers of other packages. Raises if there is none."""
    provider = full_provider(name)
    if provider not in (*PROVIDERS, *also):
        known = ", ".join((*PROVIDERS, *also))
        raise UnknownModel(f"no provider is named {name!r}; there are: {known}")
    return provider


def full_provider(name: str) -> str:
    """A provider's own name, for any of its names."""
    return _ALIASES.get(name, name)


def is_known(provider: str) -> bool:
    """Whether a provider is one of our own, by any of its names."""
    return full_provider(provider) in PROVIDERS


def says_provider(name: str) -> bool:
    """Whether a model's name begins with one of our own providers."""
    provider, slash, _ = name.partition("/")
    return bool(slash) and is_known(provider)


def has_place(provider: str, environ: Mapping[str, str]) -> bool:
    """Whether the environment sets an address or key for this provider."""
    place = PLACES.get(full_provider(provider))
    return place is not None and bool(place.key_variable(environ) or place.base_variable(environ))


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
    if provider == "ollama":
        from batten.models.ollama import CONTEXT_TOKENS, OllamaDialect

        context_tokens = _context_length(environ) or CONTEXT_TOKENS
        dialect = OllamaDialect(ollama_base(environ), context_tokens=context_tokens)
        return HttpModel(dialect, model, environ, timeouts=timeouts, context_tokens=context_tokens)
    place = PLACES[provider]
    base, key = _base_and_key(place, environ)
    match provider:
        case "anthropic":
            from batten.models.anthropic import AnthropicDialect

            token = environ.get("ANTHROPIC_AUTH_TOKEN", "").strip()
            dialect = AnthropicDialect(model, base, key=key, token=token)
        case "openai":
            from batten.models.openai_responses import ResponsesDialect

            dialect = ResponsesDialect(base, key=key)
        case "google":
            from batten.models.google import GoogleDialect

            dialect = GoogleDialect(model, base, key=key)
        case "evalops":
            from batten.models.gateway import GatewayDialect

            dialect = GatewayDialect(provider, base, key=key, environ=environ)
        case _:
            from batten.models.openai_chat import ChatDialect

            dialect = ChatDialect(
                provider,
                base,
                key=key,
                native_schema=place.native_schema,
                headers=_attribution(environ) if provider == "openrouter" else {},
            )
    return HttpModel(dialect, model, environ, timeouts=timeouts)


def _attribution(environ: Mapping[str, str]) -> dict[str, str]:
    """The application's name for OpenRouter, if both variables are set."""
    referer = environ.get("OPENROUTER_REFERER", "").strip()
    title = environ.get("OPENROUTER_TITLE", "").strip()
    return {"http-referer": referer, "x-title": title} if referer and title else {}


def _base_and_key(place: ProviderPlace, environ: Mapping[str, str]) -> tuple[str, str]:
    """With a custom address, or a token, the key is optional."""
    own = place.base_variable(environ)
    if own is None and not place.base:
        raise CallerError(
            f"set {place.base_variables[0]} to the address of the server, for example "
            "http://localhost:8000/v1",
            code="config",
        )
    if own is None and place.key_variable(environ) is None:
        raise NoCredentials(f"set {' or '.join(place.keys)} to your API key")
    key = next((value for name in place.keys if (value := environ.get(name, "").strip())), "")
    return place.base if own is None else environ[own].strip(), key


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
