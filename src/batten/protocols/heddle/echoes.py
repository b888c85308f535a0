"""Fields of responses that repeat the config and report the observed routing; since 0.4."""

from typing import Any

from msgspec import UNSET, Struct

from batten.contract.facts import AssistantMessageComplete
from batten.protocols.heddle import runtime
from batten.protocols.heddle.requests import Later
from batten.protocols.heddle.versions import Spoken


class Routed(Struct, frozen=True):
    """The model and upstream that answered, as far as providers report them."""

    model: str = ""
    upstream: str = ""
    history: tuple[str, ...] = ()
    """Every upstream that answered, in order, without repeats in a row."""

    def after(self, fact: AssistantMessageComplete) -> "Routed":
        """Updated by one more answer; unreported fields stay."""
        model = self.model if fact.answered_by is UNSET else fact.answered_by
        if fact.upstream is UNSET or fact.upstream == self.upstream:
            return Routed(model, self.upstream, self.history)
        return Routed(model, fact.upstream, (*self.history, fact.upstream))


def echoed(later: Later, spoken: Spoken, session_id: str, routed: Routed) -> dict[str, Any]:
    """The fields of `init_ok`, `status_ok` and `result` that only some sessions have."""
    fields: dict[str, Any] = {}
    if later.runtime is not None:
        fields["runtime"] = runtime.echo(later.runtime, session_id)
    model = {"routed_model": routed.model} if routed.model else {}
    history: dict[str, Any] = {"upstream_provider_history": routed.history}
    through = {**history, "upstream_provider": routed.upstream} if routed.upstream else {}
    observed = {**model, **through}
    if later.routing is not None:
        legacy = {**history, "effective_upstream_provider": routed.upstream} if through else {}
        fields["routing"] = {**later.routing, **model, **legacy}
        if spoken.has("0.5.0"):
            fields["requested_routing"] = later.routing
    if observed and spoken.has("0.5.0"):
        fields["effective_routing"] = observed
    return fields
