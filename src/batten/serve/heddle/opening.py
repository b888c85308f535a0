"""A session as an `init` asks for it, and what its answers say of it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from msgspec import UNSET, Struct

from batten.contract.errors import CallerError
from batten.contract.ids import from_uuid, new_session_id, to_uuid
from batten.models.registry import PROVIDERS, has_place, split_name
from batten.protocols.heddle import approval, hooks, profile, runtime
from batten.protocols.heddle.echoes import Routed, echoed
from batten.protocols.heddle.frames import Correlation, SendFrames
from batten.protocols.heddle.messages import InitOk, StatusOk
from batten.protocols.heddle.requests import Config, Later, Permissions
from batten.protocols.heddle.variables import Variables
from batten.protocols.heddle.versions import Spoken
from batten.serve.hosting import Host, Wanted

if TYPE_CHECKING:
    from collections.abc import Callable

    from batten.agent.deps import RunDeps
    from batten.agent.rules.rule import Rule
    from batten.agent.settings import RunSettings

    Equip = Callable[[RunDeps, RunSettings], RunDeps]

RESOLVERS = ("client", "policy", "operator")
"""Who answers, where the client does: it, policy in its place, and whoever runs `batten answer`."""
ITERATIONS = 20
"""How often the model may be asked for one send, unless the client says otherwise."""


class Opening(Struct, kw_only=True):
    """A session that was promised to the client."""

    config: Config
    later: Later
    spoken: Spoken
    variables: Variables
    model: str
    """Whom to ask, by our name of it."""
    shown_model: str
    """The same as the client knows it."""
    weak_model: str = ""
    """Who summarizes, by our name of it; empty for the same."""
    tools: tuple[str, ...]
    iterations: int
    """How often the model may be asked for one send."""
    correlation: Correlation
    messages: int = 1
    """In the conversation, the system prompt included."""
    routed: Routed = Routed()

    @classmethod
    def read(
        cls,
        config: Config,
        spoken: Spoken,
        variables: Variables,
        environ: Mapping[str, str],
        host: Host,
    ) -> Self:
        """What the command line says stands over what the client wants. `CallerError`: it cannot
        be.
        """
        forced, iterations = host.model, _iterations(config)
        later = config.later(spoken)
        if later.runtime is not None:
            runtime.check(later.runtime)
        if later.hooks is not None:
            hooks.check(later.hooks)
        return cls(
            config=config,
            later=later,
            spoken=spoken,
            variables=variables,
            model=forced or _model(config.model, variables, environ),
            shown_model=forced or config.model.strip() or variables.model,
            weak_model=_weak_model(variables, environ),
            tools=_tools(config, later, spoken, variables, host),
            iterations=iterations if host.max_turns is None else min(iterations, host.max_turns),
            correlation=Correlation(
                session_id=to_uuid(new_session_id()),
                task_id=UNSET if config.task_id is None else config.task_id,
                worker_id=UNSET if config.worker_id is None else config.worker_id,
            ),
        )

    def init_ok(self, request_id: str) -> InitOk:
        more: dict[str, Any] = {}
        if self.spoken.has("0.5.0"):
            more["capabilities"] = profile.capabilities(self.tools)
            more["profile"] = profile.profile(
                self.later, self.shown_model, self.tools, self.iterations
            )
        return InitOk(
            id=request_id,
            session_id=self.correlation.session_id,
            protocol_version=self.spoken.text,
            **more,
            **self.echoed(),
        )

    def status_ok(self, request_id: str, sending: SendFrames | None) -> StatusOk:
        routed = self.routed.model if self.spoken.has("0.3.0") else ""
        return StatusOk(
            id=request_id,
            model=self.shown_model,
            messages_count=self.messages + (0 if sending is None else sending.messages),
            session_id=self.correlation.session_id,
            active=sending is not None,
            last_routed_model=routed or UNSET,
            **self.echoed(),
        )

    def echoed(self) -> dict[str, Any]:
        return echoed(self.later, self.spoken, self.correlation.session_id, self.routed)

    def send(self, send_id: str) -> SendFrames:
        return SendFrames(
            send_id,
            self.correlation,
            self.spoken,
            self.variables.approval_mode,
            self.routed,
            answers=self.answers,
            loop_threshold=self.variables.doom_loop_threshold,
        )

    @property
    def answers(self) -> bool:
        """Whether the client answers permission requests."""
        return self.later.approvals is not None

    def over(self, frames: SendFrames) -> None:
        """A send has ended."""
        self.messages += frames.messages
        self.routed = frames.routed

    @property
    def is_isolated(self) -> bool:
        """Whether nothing of this machine's settings is to be used."""
        return _is_isolated(self.later)

    def wanted(self, instructions: list[str], equip: "Equip | None" = None) -> Wanted:
        """The session in our words, with what is to be said before the client's system prompt;
        `equip` has the client asked, if it answers.
        """
        found = approval.approval(self.variables.approval_mode)
        decided = found.mode if self.variables.approval_mode is not None else None
        return Wanted(
            surface="heddle",
            session_id=from_uuid(self.correlation.session_id, "chat"),
            models=(self.model,),
            mode=decided,
            usual_mode=found.mode,
            rules=self._rules(found),
            settings=self._settings(instructions),
            environ=self._environ(),
            bare=self.is_isolated,
            equip=equip if self.answers else None,
        )

    def _settings(self, instructions: list[str]) -> dict[str, Any]:
        variables = self.variables
        settings: dict[str, Any] = {
            "system": "\n\n".join([*instructions, self.config.system_prompt]),
            "tools": self.tools,
            "max_turns": self.iterations,
            "doom_threshold": variables.doom_loop_threshold,
            "compact_model": self.weak_model or None,
        }
        named = {
            "max_output_tokens": variables.max_tokens,
            "temperature": variables.temperature,
            "compact_ratio": variables.compact_trigger,
            "protect_tokens": variables.prune_protect,
            "resolvers": RESOLVERS if self.answers else None,
        }
        if variables.temperature is not None:
            named["temperature"] = min(variables.temperature, 2.0)
        return settings | {name: value for name, value in named.items() if value is not None}

    def _rules(self, found: approval.Approval) -> "tuple[Rule, ...]":
        """The client's own rules stand between those of the mode, which only count if there is one:
        no before ask, ask before yes.
        """
        from batten.agent.rules.rule import parse_rule

        given = self.later.permissions if self.variables.approval_mode is not None else None
        given = given or Permissions()
        named: tuple[tuple[Literal["allow", "ask", "deny"], Sequence[str]], ...] = (
            ("deny", found.denied),
            ("deny", given.deny),
            ("ask", given.ask),
            ("allow", given.allow),
            ("allow", found.allowed),
        )
        return tuple(
            parse_rule(action, one, "client")
            for action, patterns in named
            for pattern in patterns
            for one in approval.expanded(pattern)
        )

    def _environ(self) -> dict[str, str]:
        environ: dict[str, str] = {}
        if self.variables.api_key:
            environ["OPENROUTER_API_KEY"] = self.variables.api_key
        if self.variables.base_url:
            environ["OPENROUTER_BASE_URL"] = self.variables.base_url
        attribution = self.later.app_attribution
        if attribution is not None:
            environ["OPENROUTER_REFERER"] = attribution.referer
            environ["OPENROUTER_TITLE"] = attribution.title
        return environ


def _is_isolated(later: Later) -> bool:
    """Whether nothing of this machine's settings is to be used."""
    given = later.runtime
    return given is not None and given.mode == "isolated" and not given.inherit_ambient_config


def _tools(
    config: Config, later: Later, spoken: Spoken, variables: Variables, host: Host
) -> tuple[str, ...]:
    exact = spoken.has("0.5.0") or _is_isolated(later)
    found = approval.offered(config.tools, variables.approval_mode, exact=exact)
    allowed = host.tools
    return found if allowed is None else tuple(tool for tool in found if tool in allowed)


def _iterations(config: Config) -> int:
    given = config.max_iterations
    if given is None:
        return ITERATIONS
    if given != int(given) or given < 1:
        raise CallerError("config.max_iterations must be a whole number of at least 1")
    return int(given)


def _weak_model(variables: Variables, environ: Mapping[str, str]) -> str:
    """One that cannot be reached is done without."""
    if not variables.weak_model:
        return ""
    try:
        return _model(variables.weak_model, variables, environ)
    except CallerError:
        return ""


def _model(asked: str, variables: Variables, environ: Mapping[str, str]) -> str:
    """The model's full name. What is not reached at its own provider goes through OpenRouter,
    which knows models by the names clients use.
    """
    name = asked.strip() or variables.model
    provider = name.partition("/")[0]
    if not name:
        raise CallerError("config.model names no model")
    if provider == "scripted":
        return name
    if variables.base_url:
        return f"openrouter/{name}"
    own = provider in PROVIDERS and provider != "openrouter"
    if own and has_place(provider, environ):
        return "/".join(split_name(name))
    if has_place("openrouter", environ):
        return f"openrouter/{name}"
    raise CallerError(
        f"no key for {name}: set OPENROUTER_API_KEY, or the key of the model's own provider"
    )
