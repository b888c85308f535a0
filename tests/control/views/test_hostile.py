"""No payload that an agent can send stops a view."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batten.control.views.folds import STATES, VIEWS, View
from batten.protocols.macp.messages import TYPES
from batten.protocols.macp.projection import state_of
from tests.examples import examples
from tests.protocols.macp.making import envelopes, observed, said

NAMES = (
    *("proposalId", "requestId", "vote", "recommendation", "confidence", "reason", "reasons"),
    *("llmCall", "tokenUsage", "metadata", "json", "encoding", "payloadBase64", "promptTokens"),
    *("completionTokens", "estimatedCostUsd", "model", "latencyMs", "signalType", "data"),
    *("outcomePositive", "action", "supersedes", "participants", "progress", "total", "to"),
    *("policyId", "policyVersion", "decision", "expectedCommitments", "commitmentId", "message"),
)
MESSAGES = (
    *TYPES,
    *("SessionStart", "Progress", "ToolCall", "PolicyResolved", "PolicyCommitmentEvaluated"),
    *("PolicyDenied", "Note"),
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**25), 10**25),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from(["APPROVE", "json", "llm.call.completed", "8"]),
)
payloads = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
@given(
    said_=st.lists(
        st.tuples(st.sampled_from(MESSAGES), st.one_of(payloads, st.binary(max_size=20))),
        max_size=5,
    ),
    patterns=st.sampled_from([[], ["A+"]]),
)
@settings(max_examples=examples(150), deadline=None)
def test_any_payload_is_folded_and_stored(
    view: View[Any], said_: list[tuple[str, Any]], patterns: list[str]
) -> None:
    frames = [
        said("ann", type_, body if isinstance(body, bytes) else json.dumps(body))
        for type_, body in said_
    ]
    state = view.state()
    for envelope in envelopes(observed(*frames, redact=patterns)):
        view.step(state, envelope)
        stored = view.encode(state)
        state = view.decode(stored)
        assert view.encode(state) == stored
    if view is STATES:
        msgspec.json.encode(state_of(state.projection))


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_a_payload_that_nests_too_deep_is_shown_as_text(view: View[Any]) -> None:
    deep = "[" * 700 + "]" * 700
    signal = said("ann", "Signal", signal_type="llm.call.completed", data=deep.encode())
    state = view.state()
    for envelope in envelopes(observed(said("ann", "Note", deep), signal, redact=["x"])):
        for event in view.step(state, envelope):
            if event.data.get("messageType") == "Note":
                assert event.data["payload"]["text"] == deep


@pytest.mark.parametrize("number", [10**25, -(10**400), 1e300, 10**15, -1])
@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_numbers_beyond_all_counting_are_shown_and_not_added(view: View[Any], number: Any) -> None:
    call = {"promptTokens": number, "completionTokens": 1, "estimatedCostUsd": number}
    cost = {"promptTokens": 10, "completionTokens": 0, "estimatedCostUsd": number}
    bodies = [
        ("Signal", {"signalType": "x", "confidence": number, "llmCall": call}),
        ("Evaluation", {"proposalId": "p", "confidence": number, "tokenUsage": cost}),
        ("Progress", {"progress": number, "total": 1e-300}),
        ("TaskUpdate", {"progress": number}),
    ]
    state = view.state()
    frames = [said("ann", type_, json.dumps(body)) for type_, body in bodies]
    for envelope in envelopes(observed(*frames)):
        view.step(state, envelope)
        state = view.decode(view.encode(state))
    if view is STATES:
        shown = state_of(state.projection)
        assert shown.llm.totals.call_count == 1
        assert shown.llm.totals.estimated_cost_usd == 0.00001
        assert shown.signals.signals[0].payload["json"]["confidence"] == number
