"""Any number of clients of a shared runtime in any order: the lease has one holder at most."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
)

from batten.contract.errors import BattenError, CallerError, Conflict, NotFound
from batten.protocols.maestro.hosted import ConnectAsk, SubscribeAsk
from batten.protocols.maestro.incoming import Hello, Prompt
from batten.protocols.maestro.outgoing import ClientInfo
from batten.protocols.maestro.snapshot import RuntimeState
from batten.protocols.maestro.vocabulary import Role
from tests.examples import examples
from tests.protocols.sharing import Shared

PROMPT = Prompt(content="go on")
Made = str | MultipleResults[str]
NOTHING: MultipleResults[str] = multiple()
roles = st.sampled_from(["controller", "viewer", None])


class Crowd(RuleBasedStateMachine):
    """Anybody comes, takes over, speaks, is silent and goes, in any order."""

    connections: Bundle[str] = Bundle("connections")
    subscriptions: Bundle[str] = Bundle("subscriptions")

    def __init__(self) -> None:
        super().__init__()
        self.shared = Shared()
        self.registry = self.shared.registry
        self.roles: dict[str, Role] = {}
        self.seen = (self.registry.version, self.registry.shown(RuntimeState()))

    def owner(self, subscription_id: str) -> str:
        return self.registry.subscription(subscription_id).connection.connection_id

    def met(self, connection_id: str, role: Role | None) -> str:
        known = self.roles.setdefault(connection_id, role or "controller")
        assert role in (None, known)
        return connection_id

    @rule(target=connections, role=roles, take_control=st.booleans())
    def connect(self, role: Role | None, take_control: bool) -> Made:
        try:
            made = self.registry.connect(ConnectAsk(role=role, take_control=take_control))
        except Conflict:
            assert role != "viewer"
            assert not take_control
            assert self.registry.controller_connection_id is not None
            return NOTHING
        return self.met(made, role)

    @rule(
        target=subscriptions,
        role=roles,
        take_control=st.booleans(),
        connection_id=st.none() | connections,
    )
    def subscribe(self, role: Role | None, take_control: bool, connection_id: str | None) -> Made:
        ask = SubscribeAsk(role=role, take_control=take_control, connection_id=connection_id)
        try:
            made = self.registry.subscribe(ask)
        except CallerError:
            return NOTHING
        self.met(self.owner(made), role)
        return made

    @rule(target=subscriptions)
    def look_on(self) -> str:
        made = self.registry.look_on(SubscribeAsk(role="viewer"))
        self.met(self.owner(made), "viewer")
        self.registry.attached(made, True)
        return made

    @rule(subscription_id=subscriptions, is_attached=st.booleans())
    def stream(self, subscription_id: str, is_attached: bool) -> None:
        self.tried(lambda: self.registry.attached(subscription_id, is_attached))

    @rule(connection_id=connections)
    def take_over(self, connection_id: str) -> None:
        self.tried(
            lambda: self.registry.connect(
                ConnectAsk(connection_id=connection_id, take_control=True)
            )
        )

    @rule(connection_id=st.none() | connections, subscription_id=st.none() | subscriptions)
    def speak(self, connection_id: str | None, subscription_id: str | None) -> None:
        before = self.registry.controller_connection_id
        try:
            entitled = self.registry.entitle(PROMPT, connection_id, subscription_id)
        except BattenError:
            assert self.registry.controller_connection_id == before
            return
        assert before in (None, entitled.connection_id)
        assert entitled.claimed == (before is None and entitled.connection_id is not None)
        assert self.registry.controller_connection_id == entitled.connection_id

    @rule(connection_id=connections)
    def beat(self, connection_id: str) -> None:
        self.tried(lambda: self.registry.heartbeat(connection_id))

    @rule(subscription_id=subscriptions)
    def unsubscribe(self, subscription_id: str) -> None:
        self.tried(lambda: self.registry.unsubscribe(subscription_id))

    @rule(connection_id=connections)
    def disconnect(self, connection_id: str) -> None:
        self.tried(lambda: self.registry.disconnect(connection_id))
        assert self.registry.controller_connection_id != connection_id

    @rule(seconds=st.floats(0, 60))
    def expire(self, seconds: float) -> None:
        self.shared.now += seconds
        gone = self.registry.expire()
        assert self.registry.controller_connection_id not in gone.connections
        for subscription_id in gone.subscriptions:
            with pytest.raises(NotFound):
                self.registry.subscription(subscription_id)

    def tried(self, act: Callable[[], object]) -> None:
        with suppress(NotFound):
            act()

    @rule(connection_id=connections, name=st.sampled_from("ab"))
    def greet(self, connection_id: str, name: str) -> None:
        with suppress(CallerError):
            self.registry.greet(connection_id, Hello(client_info=ClientInfo(name=name)))

    @rule()
    def clear(self) -> None:
        self.registry.clear()

    @invariant()
    def a_change_of_what_is_shown_has_a_new_version(self) -> None:
        version, shown = self.seen
        self.seen = (self.registry.version, self.registry.shown(RuntimeState()))
        assert self.seen[1] == shown or self.seen[0] > version

    @invariant()
    def the_lease_has_one_holder_at_most_who_is_there_and_a_controller(self) -> None:
        state = self.registry.shown(RuntimeState())
        granted = [one for one in state.connections if one.controller_lease_granted]
        assert [one.connection_id for one in granted] == (
            [] if state.controller_connection_id is None else [state.controller_connection_id]
        )
        assert all(one.role == "controller" for one in granted)
        assert {one.connection_id: one.role for one in state.connections}.items() <= (
            self.roles.items()
        )
        assert state.connection_count == len(state.connections)
        assert state.subscriber_count == sum(one.subscription_count for one in state.connections)


TestCrowd = Crowd.TestCase
TestCrowd.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
