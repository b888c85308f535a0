"""Turns an `init` into a session, and builds the responses about it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from msgspec import UNSET, Struct
from msgspec.structs import replace

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
from batten.wiring.spec import SessionSpec

if TYPE_CHECKING:
    from batten.agent.rules.rule import Rule
    from batten.wiring.spec import Equip

RESOLVERS = ("client", "policy", "operator")
"""If the client answers: it, policy in its place, or an operator with `batten answer`."""
ITERATIONS = 20
"""Model calls per send, unless the client sets another limit."""
RETRIES = 2
"""Of a failed model call: an error is reported soon, since the client may retry it."""


class Opening(Struct, kw_only=True):
    """A session whose `init` was accepted."""

    config: Config
    later: Later
    spoken: Spoken
    variables: Variables
    model: str
    """By our name."""
    shown_model: str
    """By the client's name."""
    weak_model: str = ""
    """The model for summaries, by our name; empty for the same one."""
    tools: tuple[str, ...]
    iterations: int
    """Model calls per send."""
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
        base: SessionSpec,
    ) -> Self:
        """Combine the client's config with the command line, which takes precedence.

        Raises `CallerError` for a config that cannot be served.
        """
        forced, iterations = base.model, _iterations(config)
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
            tools=_tools(config, variables, base),
            iterations=iterations if base.max_turns is None else min(iterations, base.max_turns),
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
        """Update the session after a send has ended."""
        self.messages += frames.messages
        self.routed = frames.routed

    @property
    def is_isolated(self) -> bool:
        """Whether this machine's settings are ignored."""
        given = self.later.runtime
        return given is not None and given.mode == "isolated" and not given.inherit_ambient_config

    def spec(
        self, base: SessionSpec, instructions: list[str], equip: "Equip | None" = None
    ) -> SessionSpec:
        """The specification of the session, from the client's config where the command line sets
        nothing.

        `instructions` go before the client's system prompt; `equip` routes requests to the client,
        if it answers them.
        """
        found = approval.approval(self.variables.approval_mode)
        decided = found.mode if self.variables.approval_mode is not None else None
        own = replace(
            base,
            surface="heddle",
            session_id=from_uuid(self.correlation.session_id, "chat"),
            models=base.models or (self.model,),
            mode=base.mode or decided,
            usual_mode=found.mode,
            rules=(*base.rules, *self._rules(found)),
            system="\n\n".join([*instructions, self.config.system_prompt]),
            tools=self.tools,
            max_turns=self.iterations,
            usual_retries=RETRIES,
            environ={**base.environ, **self._environ()},
            bare=base.bare or self.is_isolated,
        )
        if self.answers:
            own = replace(own, resolvers=RESOLVERS, equip=equip)
        return self._tuned(own)

    def _tuned(self, spec: SessionSpec) -> SessionSpec:
        """The specification with the client's limits and sampling instead of the flags'."""
        given, heat = self.variables, self.variables.temperature
        return replace(
            spec,
            doom_threshold=given.doom_loop_threshold,
            compact_model=self.weak_model or None,
            max_output_tokens=given.max_tokens or spec.max_output_tokens,
            temperature=spec.temperature if heat is None else min(heat, 2.0),
            compact_ratio=given.compact_trigger,
            protect_tokens=given.prune_protect,
        )

    def _rules(self, found: approval.Approval) -> "tuple[Rule, ...]":
        """The rules of the approval mode and, if one is set, the client's own between them: deny
        before ask, ask before allow.
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


def _tools(config: Config, variables: Variables, base: SessionSpec) -> tuple[str, ...]:
    found = approval.offered(config.tools, variables.approval_mode)
    allowed = base.tools
    return found if allowed is None else tuple(tool for tool in found if tool in allowed)


def _iterations(config: Config) -> int:
    given = config.max_iterations
    if given is None:
        return ITERATIONS
    if given != int(given) or given < 1:
        raise CallerError("config.max_iterations must be a whole number of at least 1")
    return int(given)


def _weak_model(variables: Variables, environ: Mapping[str, str]) -> str:
    """The model for summaries; empty if none is set or it has no key."""
    if not variables.weak_model:
        return ""
    try:
        return _model(variables.weak_model, variables, environ)
    except CallerError:
        return ""


def _model(asked: str, variables: Variables, environ: Mapping[str, str]) -> str:
    """The model's full name. A model whose own provider has no key goes through OpenRouter, which
    uses the same names as clients.
    """
    name = asked.strip() or variables.model
    provider = name.partition("/")[0]
    if not name:
        raise CallerError("config.model names no model")
    if provider == "scripted":
        if asked.strip():
            raise CallerError(
                f"config.model cannot name a file ({name}): start the worker with --model {name}"
            )
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
