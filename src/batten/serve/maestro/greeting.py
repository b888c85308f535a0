"""The first messages: the model, the session and its workspace."""

import os

from batten.contract.errors import CallerError
from batten.journal.file_format import looks_usable
from batten.models.registry import has_place, is_known, split_name
from batten.protocols.maestro import PROTOCOL_VERSION
from batten.protocols.maestro.incoming import Hello
from batten.protocols.maestro.outgoing import Ready, SessionInfo, Status
from batten.settings.folders import has_settings
from batten.settings.regular import read_regular
from batten.wiring.spec import SessionSpec

_LONGEST_NAME = 4096


def ready(model: str, session_id: str) -> Ready:
    """The `ready` message for a model's full name, `provider/model`."""
    provider, _, name = model.partition("/")
    return Ready(
        protocol_version=PROTOCOL_VERSION,
        model=name,
        provider=provider,
        executor_type="replay" if provider == "scripted" else "live",
        session_id=session_id,
    )


def checked_model(base: SessionSpec) -> str:
    """The full name of a session's model, checked as far as possible without calling it."""
    provider, slash, model = base.model.partition("/")
    if slash and not is_known(provider):
        from batten.wiring.files import providers_of_files

        # Read only here: the client is greeted before settings are.
        also = providers_of_files(base)
        if provider in also:
            return base.model
        split_name(base.model, also)
    environ = base.environ
    provider, model = split_name(base.model)
    if provider == "scripted":
        model = os.path.abspath(model)
        if not os.path.isfile(model):
            raise CallerError(f"there is no scenario at {model}", code="config")
        from batten.models.scenario import load

        try:
            load(model)
        except CallerError as error:
            raise CallerError(str(error), code="config") from error
    elif not has_place(provider, environ) and provider != "ollama":
        variable = f"{provider.upper()}_API_KEY"
        raise CallerError(f"no key for {provider} is set, for example {variable}", code="config")
    return f"{provider}/{model}"


def opens_surely(base: SessionSpec, home: str) -> bool:
    """Whether nothing is known that could keep a session from opening, which takes a while: it is
    then called ready before. Settings, tool servers and a strange store may turn out wrong.
    """
    asked = (base.resume, base.settings, base.mcp_servers, base.plugin_dirs, base.add_dirs)
    if any(asked) or base.record or base.worktree is not None:
        return False
    if any(name.startswith("MAESTRO_") and "_MCP_" in name for name in base.environ):
        return False
    workspace = os.path.join(base.cwd, base.workspace or "")
    return not has_settings(workspace, base.environ) and (not base.save or looks_usable(home))


def other_version(hello: Hello) -> Status | None:
    """A notice for a client with another protocol version, which may stay connected."""
    spoken = hello.protocol_version
    if spoken in (None, PROTOCOL_VERSION):
        return None
    return Status(message=f"Client protocol {spoken} attached to server {PROTOCOL_VERSION}")


def session_info(session_id: str, workspace: str) -> SessionInfo:
    return SessionInfo(session_id=session_id, cwd=workspace, git_branch=branch_of(workspace))


def branch_of(directory: str) -> str | None:
    """The checked-out branch of the repository around a directory; None without one."""
    while True:
        head = _head(os.path.join(directory, ".git"))
        if head is not None:
            return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else None
        above = os.path.dirname(directory)
        if above == directory:
            return None
        directory = above


def _head(git: str) -> str | None:
    """The content of `HEAD`; a linked worktree's `.git` is a file that names its directory."""
    try:
        if os.path.isfile(git):
            named = _text(git).removeprefix("gitdir:").strip()
            git = os.path.join(os.path.dirname(git), named)
        return _text(os.path.join(git, "HEAD")).strip()
    except (OSError, ValueError):
        return None


def _text(path: str) -> str:
    return read_regular(path, _LONGEST_NAME).decode()
