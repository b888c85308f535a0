"""Handoff: the initiator offers its responsibility to another participant."""

from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from batten.coordination.modes.mode import (
    Descriptor,
    Due,
    Mode,
    ModeState,
    Panel,
    Row,
    Step,
    nonblank,
    published_schema,
)
from batten.coordination.payloads import wire_types, write
from batten.coordination.policy.policy import unsupported
from batten.coordination.rejection import Rejection, forbidden, invalid

MODE = "macp.mode.handoff.v1"


class HandoffOfferPayload(Struct, frozen=True):
    handoff_id: str = ""
    target_participant: str = ""
    scope: str = ""
    reason: str = ""


class HandoffContextPayload(Struct, frozen=True):
    handoff_id: str = ""
    content_type: str = ""
    context: bytes = b""


class HandoffAcceptPayload(Struct, frozen=True):
    handoff_id: str = ""
    accepted_by: str = ""
    reason: str = ""
    implicit: bool = False


class HandoffDeclinePayload(Struct, frozen=True):
    handoff_id: str = ""
    declined_by: str = ""
    reason: str = ""


class HandoffOffer(Struct, frozen=True):
    handoff_id: str
    target: str
    scope: str
    offerer: str
    offered_at_ms: int
    """Later by the time that the session was suspended since."""
    disposition: Literal["Offered", "Accepted", "Declined"] = "Offered"
    implicit: bool = False
    """Accepted because the time to answer has passed."""
    contexts: int = 0


class HandoffState(ModeState, frozen=True, kw_only=True):
    phase: str = "Idle"
    offers: dict[str, HandoffOffer] = field(default_factory=dict[str, HandoffOffer])


class Handoff(Mode[HandoffState]):
    descriptor = Descriptor(
        mode=MODE,
        mode_version="1.0.0",
        title="Handoff",
        description="The initiator offers its responsibility to another participant.",
        determinism_class="context-frozen",
        participant_model="delegated",
        schema_uris=published_schema("handoff"),
        message_types=(
            "SessionStart",
            "HandoffOffer",
            "HandoffContext",
            "HandoffAccept",
            "HandoffDecline",
            "Commitment",
        ),
    )
    rows = (
        Row("Idle", "HandoffOffer", "initiator", ("Offered",)),
        Row("Offered", "HandoffContext", "offerer", ("Offered",)),
        Row("Offered", "HandoffAccept", "target", ("Accepted",)),
        Row("Offered", "HandoffDecline", "target", ("Declined",)),
        Row("Declined", "HandoffOffer", "initiator", ("Offered",)),
        Row("Declined", "HandoffContext", "offerer", ("Declined",)),
        Row("Accepted", "HandoffContext", "offerer", ("Accepted",)),
        Row("Offered", "Commitment", "authority", ("Committed",)),
        Row("Accepted", "Commitment", "authority", ("Committed",)),
        Row("Declined", "Commitment", "authority", ("Committed",)),
    )
    payloads = wire_types(
        "macp.modes.handoff.v1.handoff_pb2",
        HandoffOffer=HandoffOfferPayload,
        HandoffContext=HandoffContextPayload,
        HandoffAccept=HandoffAcceptPayload,
        HandoffDecline=HandoffDeclinePayload,
    )
    first = HandoffState()

    def check_start(self, panel: Panel) -> None:
        if len(panel.participants) < 2 or panel.initiator not in panel.participants:
            raise invalid("a handoff needs two participants, the initiator among them")

    def check_role(self, state: HandoffState, step: Step) -> None:
        match step.payload:
            case HandoffContextPayload(handoff_id=id_):
                if _offer(state, id_).offerer != step.sender:
                    raise forbidden("only the participant that made the offer may add context")
            case HandoffAcceptPayload(handoff_id=id_) | HandoffDeclinePayload(handoff_id=id_):
                if _offer(state, id_).target != step.sender:
                    raise forbidden("only the participant that got the offer may answer it")
            case _:
                pass

    def apply(self, state: HandoffState, panel: Panel, step: Step) -> HandoffState:
        match step.payload:
            case HandoffOfferPayload() as payload:
                return _offered(state, panel, step, payload)
            case HandoffContextPayload() as payload:
                offer = _offer(state, payload.handoff_id)
                return _with(state, replace(offer, contexts=offer.contexts + 1))
            case HandoffAcceptPayload() as payload:
                offer = _pending(state, payload.handoff_id)
                _own(step, "accepted_by", payload.accepted_by)
                if payload.implicit and not step.by_runtime:
                    raise invalid("only the runtime accepts an offer implicitly")
                after = replace(offer, disposition="Accepted", implicit=payload.implicit)
                return replace(_with(state, after), phase="Accepted")
            case HandoffDeclinePayload() as payload:
                offer = _pending(state, payload.handoff_id)
                _own(step, "declined_by", payload.declined_by)
                after = replace(offer, disposition="Declined")
                return replace(_with(state, after), phase="Declined")
            case _:
                raise invalid(f"{step.message_type} is no message of this mode")

    def check_phase(self, state: HandoffState, message_type: str) -> Row:
        row = super().check_phase(state, message_type)
        answered = any(offer.disposition != "Offered" for offer in state.offers.values())
        if message_type == "Commitment" and not answered:
            raise invalid("no offer was accepted or declined yet")
        return row

    def committed(
        self, state: HandoffState, panel: Panel, step: Step, payload: bytes
    ) -> tuple[HandoffState, bytes]:
        return replace(state, phase="Committed"), payload

    def judge(self, state: HandoffState, panel: Panel, positive: bool) -> Rejection | None:
        return unsupported(panel.policy)

    def resumed(self, state: HandoffState, banked_ms: int) -> HandoffState:
        """A target cannot answer while the session is suspended: that time does not count."""
        offers = {
            id_: replace(offer, offered_at_ms=offer.offered_at_ms + banked_ms)
            if offer.disposition == "Offered"
            else offer
            for id_, offer in state.offers.items()
        }
        return replace(state, offers=offers)

    def due_at_ms(self, state: HandoffState, panel: Panel) -> int | None:
        """When an offer counts as accepted; None if none waits for that."""
        timeout = panel.policy.handoff.acceptance.implicit_accept_timeout_ms
        if not timeout or state.phase != "Offered":
            return None
        offer = next(one for one in state.offers.values() if one.disposition == "Offered")
        return offer.offered_at_ms + timeout

    def due(self, state: HandoffState, panel: Panel) -> Due:
        offer = next(one for one in state.offers.values() if one.disposition == "Offered")
        fields = {"handoff_id": offer.handoff_id, "accepted_by": offer.target, "implicit": True}
        return Due(
            message_type="HandoffAccept",
            message_id=f"implicit-accept:{offer.handoff_id}",
            sender=offer.target,
            payload=write(self.payloads["HandoffAccept"], fields),
        )


def _offered(
    state: HandoffState, panel: Panel, step: Step, payload: HandoffOfferPayload
) -> HandoffState:
    nonblank(payload, "handoff_id", "target_participant")
    target = payload.target_participant
    if payload.handoff_id in state.offers:
        raise invalid(f"handoff {payload.handoff_id} exists already")
    if target not in panel.participants or target == step.sender:
        raise invalid(f"{target} is no other participant of the session")
    if any(one.target == target for one in state.offers.values()):
        raise invalid(f"{target} has declined already")
    offer = HandoffOffer(payload.handoff_id, target, payload.scope, step.sender, step.at_ms)
    return replace(_with(state, offer), phase="Offered")


def _offer(state: HandoffState, handoff_id: str) -> HandoffOffer:
    offer = state.offers.get(handoff_id)
    if offer is None:
        raise invalid(f"there is no handoff {handoff_id!r}")
    return offer


def _pending(state: HandoffState, handoff_id: str) -> HandoffOffer:
    offer = _offer(state, handoff_id)
    if offer.disposition != "Offered":
        raise invalid(f"handoff {handoff_id} was answered already")
    return offer


def _own(step: Step, field: str, value: str) -> None:
    if value not in ("", step.sender):
        raise invalid(f"{field} must be empty or {step.sender}")


def _with(state: HandoffState, offer: HandoffOffer) -> HandoffState:
    return replace(state, offers={**state.offers, offer.handoff_id: offer})
