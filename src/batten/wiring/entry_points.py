"""Models and tools of other packages: entry points that the settings name.

Imported only if the settings name one; only then are the installed packages read.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast, get_args

from batten.contract.cutting import shortened
from batten.contract.errors import BattenError, CallerError
from batten.contract.facts.tool import ToolKind
from batten.models.contract import Model, ToolSpec
from batten.models.registry import PROVIDERS
from batten.settings.contract import EntryPoints
from batten.tools.contract import Effect, Tool
from batten.tools.schema import validator_for

MODELS = "batten.models"
TOOLS = "batten.tools"

OpenModel = Callable[[str, Mapping[str, str]], Model]
"""An object of `batten.models`: opens a model by its name, without the provider."""
MakeTools = Callable[[str, Mapping[str, str]], Iterable[Tool]]
"""An object of `batten.tools`: the tools for a workspace."""

_LONGEST = 1000
"""Characters of a message; it quotes errors of foreign code."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class EntryPointError(CallerError):
    """An entry point that the settings name is missing or broken, or gives no model or tool."""

    code = "config"

    def __init__(self, message: str) -> None:
        super().__init__(shortened(" ".join(message.split()), _LONGEST))


class Extensions:
    """The entry points of one session, loaded when it opens."""

    def __init__(self, named: EntryPoints, workspace: str, environ: Mapping[str, str]) -> None:
        """Raises `EntryPointError`; its message names the entry point and its package."""
        self._environ = environ
        self._models = {name: _load(MODELS, name) for name in named.models}
        for name in self._models:
            if name in PROVIDERS:
                raise EntryPointError(f"{MODELS}: {name} is a provider of our own; rename it")
        self.tools: tuple[Tool, ...] = tuple(
            tool for name in named.tools for tool in _tools(name, workspace, environ)
        )

    def open_model(self, name: str) -> Model | None:
        """Open `provider/model`; None if the provider is not one of these."""
        provider, _, model = name.partition("/")
        if provider not in self._models:
            return None
        point, load = self._models[provider]
        what = f"{_shown(point)} cannot open the model {model!r}"
        opened = _called(what, load, model, self._environ)
        missing = [one for one in _MODEL if not hasattr(opened, one)]
        if missing:
            raise EntryPointError(f"{what}: it gives {opened!r}, which has no {missing[0]}")
        return cast("Model", opened)


_MODEL = ("provider", "name", "native_schema", "context_tokens", "price", "stream", "aclose")


def _load(group: str, name: str) -> tuple[EntryPoint, Callable[..., object]]:
    """An entry point and its object."""
    installed = entry_points(group=group)
    found = {one.value: one for one in installed if one.name == name}
    if not found:
        names = ", ".join(sorted({one.name for one in installed})) or "none"
        raise EntryPointError(
            f"the settings name the entry point {name!r} of {group}, which no installed package "
            f"has; installed are: {names}"
        )
    if len(found) > 1:
        packages = ", ".join(sorted(_package(one) for one in found.values()))
        raise EntryPointError(f"{group}: {name} is an entry point of several packages: {packages}")
    (point,) = found.values()
    try:
        loaded = point.load()
    except (Exception, SystemExit) as error:  # foreign code, and it may do anything
        reason = f"{type(error).__name__}: {error}"
        raise EntryPointError(f"{_shown(point)} cannot be imported: {reason}") from error
    if not callable(loaded):
        raise EntryPointError(f"{_shown(point)} is {loaded!r}; it must be a function")
    return point, loaded


def _called(what: str, function: Callable[..., object], *arguments: object) -> object:
    try:
        return function(*arguments)
    except BattenError:
        raise  # it says itself what is wrong, such as a missing key
    except (Exception, SystemExit) as error:  # foreign code
        raise EntryPointError(f"{what}: {type(error).__name__}: {error}") from error


def _tools(name: str, workspace: str, environ: Mapping[str, str]) -> Sequence[Tool]:
    point, make = _load(TOOLS, name)
    what = f"{_shown(point)} cannot make its tools"
    made = _called(what, lambda: list(cast("Any", make(workspace, environ))))
    for tool in cast("list[object]", made):
        if problem := _problem(tool):
            raise EntryPointError(f"{_shown(point)} gives {tool!r}, which is no tool: {problem}")
    return cast("list[Tool]", made)


def _problem(tool: object) -> str | None:
    """Why this is no tool; None if it is one."""
    spec = getattr(tool, "spec", None)
    if not isinstance(spec, ToolSpec):
        return "its `spec` is no ToolSpec"
    if not _NAME.fullmatch(spec.name):
        return f"its name is {spec.name!r}; use up to 64 letters, digits, - and _"
    try:
        validator_for(spec.parameters)
    except (ValueError, TypeError) as error:
        return f"its parameters are no JSON Schema: {error}"
    for field, known in (("kind", get_args(ToolKind)), ("effect", get_args(Effect))):
        if getattr(tool, field, None) not in known:
            return f"its `{field}` is {getattr(tool, field, None)!r}; use one of {', '.join(known)}"
    for method in ("subject", "run"):
        if not callable(getattr(tool, method, None)):
            return f"it has no method `{method}`"
    return None


def _shown(point: EntryPoint) -> str:
    return f"the entry point {point.name} = {point.value} of {_package(point)} ({point.group})"


def _package(point: EntryPoint) -> str:
    return "an unknown package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
