import subprocess
import sys

import pytest

from batten.contract.errors import CallerError
from batten.models.contract import Model
from batten.models.registry import open_model, split_name

KEYS = {
    "ANTHROPIC_API_KEY": "k",
    "OPENAI_API_KEY": "k",
    "GEMINI_API_KEY": "k",
    "OPENROUTER_API_KEY": "k",
    "XAI_API_KEY": "k",
    "COMPAT_BASE_URL": "http://localhost:8000/v1",
}


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("anthropic/claude-x", "anthropic", "claude-x"),
        ("claude-opus-4-6", "anthropic", "claude-opus-4-6"),
        ("openai/gpt-5", "openai", "gpt-5"),
        ("gpt-5-mini", "openai", "gpt-5-mini"),
        ("o3", "openai", "o3"),
        ("openai-chat/gpt-4o", "openai-chat", "gpt-4o"),
        ("xai/grok-4", "xai", "grok-4"),
        ("google/gemini-2.5-pro", "google", "gemini-2.5-pro"),
        ("gemini/gemini-2.5-pro", "google", "gemini-2.5-pro"),
        ("gemini-2.5-flash", "google", "gemini-2.5-flash"),
        ("ollama/qwen3:8b", "ollama", "qwen3:8b"),
        ("openrouter/anthropic/claude-x", "openrouter", "anthropic/claude-x"),
        ("compat/meta/llama", "compat", "meta/llama"),
    ],
)
def test_names_lead_to_models(name: str, provider: str, model: str) -> None:
    opened: Model = open_model(name, KEYS)
    assert (opened.provider, opened.name) == (provider, model)
    assert opened.context_tokens > 1000


@pytest.mark.parametrize("name", ["", "mystery", "nobody/model", "anthropic/", "/x"])
def test_an_unknown_name_says_what_would_be_right(name: str) -> None:
    with pytest.raises(CallerError, match=r"PROVIDER/MODEL.*anthropic, openai") as raised:
        open_model(name, KEYS)
    assert raised.value.code == "config"


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("claude-x", "ANTHROPIC_API_KEY"),
        ("openai/gpt-5", "OPENAI_API_KEY"),
        ("openai-chat/gpt-5", "OPENAI_API_KEY"),
        ("gemini-3", "GEMINI_API_KEY or GOOGLE_API_KEY"),
        ("openrouter/x", "OPENROUTER_API_KEY"),
        ("compat/x", "COMPAT_BASE_URL"),
    ],
)
def test_a_missing_key_is_named(name: str, variable: str) -> None:
    for environ in ({}, {"ANTHROPIC_API_KEY": "  ", "OPENAI_API_KEY": ""}):
        with pytest.raises(CallerError, match=f"set {variable}") as raised:
            open_model(name, environ)
        assert raised.value.code == "config"


def test_either_credential_opens_anthropic_and_either_key_google() -> None:
    open_model("claude-x", {"ANTHROPIC_AUTH_TOKEN": "t"})
    open_model("gemini-3", {"GOOGLE_API_KEY": "k"})


def test_a_base_address_that_is_none_is_a_configuration_error() -> None:
    with pytest.raises(CallerError, match="is not http://host") as raised:
        open_model("claude-x", {"ANTHROPIC_BASE_URL": "localhost:8000", "ANTHROPIC_API_KEY": "k"})
    assert raised.value.code == "config"


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({}, ("http", "127.0.0.1", 11434)),
        ({"OLLAMA_HOST": "box"}, ("http", "box", 11434)),
        ({"OLLAMA_HOST": "box:80"}, ("http", "box", 80)),
        ({"OLLAMA_HOST": ":9999"}, ("http", "127.0.0.1", 9999)),
        ({"OLLAMA_HOST": "0.0.0.0"}, ("http", "127.0.0.1", 11434)),
        ({"OLLAMA_HOST": "0.0.0.0:7"}, ("http", "127.0.0.1", 7)),
        ({"OLLAMA_HOST": "https://box"}, ("https", "box", 443)),
        ({"OLLAMA_HOST": "[::1]"}, ("http", "::1", 11434)),
        ({"OLLAMA_HOST": "x", "OLLAMA_BASE_URL": "http://y:1"}, ("http", "y", 1)),
    ],
)
def test_the_address_of_ollama_is_read_as_its_own_client_does(
    environ: dict[str, str], address: tuple[str, str, int]
) -> None:
    from batten.models.address import parse_address
    from batten.models.registry import ollama_base

    assert parse_address(ollama_base(environ)).origin == address


def test_the_context_ollama_is_asked_for_can_be_set() -> None:
    assert open_model("ollama/x", {}).context_tokens == 32_768
    assert open_model("ollama/x", {"OLLAMA_CONTEXT_LENGTH": "8192"}).context_tokens == 8192


def test_aliases_are_resolved_before_anything_is_opened() -> None:
    assert split_name("gemini/x") == ("google", "x")
    assert split_name("scripted/path/to/file.yaml") == ("scripted", "path/to/file.yaml")


def test_opening_a_model_loads_nothing_it_does_not_need() -> None:
    program = (
        "import sys\n"
        "from batten.models.registry import open_model\n"
        "open_model('anthropic/claude-x', {'ANTHROPIC_API_KEY': 'k'})\n"
        "heavy = ['httpx', 'certifi', 'email', 'urllib.parse', 'random', 'json',\n"
        "    'batten.models.tls', 'batten.models.pricing', 'batten.models.google',\n"
        "    'batten.models.openai_chat', 'batten.models.scripted', 'dataclasses']\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"
