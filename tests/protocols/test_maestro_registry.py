"""Who may listen to a shared runtime and who may speak: connections, the lease, and expiry."""

import pytest
from msgspec import UNSET

from batten.contract.errors import CallerError, Conflict, NotFound, Refused
from batten.protocols.maestro.connection import ROLE_CHANGED, VIEWER_REFUSED
from batten.protocols.maestro.hosted import AskedCapabilities, ConnectAsk, SubscribeAsk
from batten.protocols.maestro.incoming import (
    Cancel,
    FileRead,
    Hello,
    Incoming,
    Interrupt,
    Prompt,
    ShutDown,
)
from batten.protocols.maestro.outgoing import (
    ClientCapabilities,
    ClientInfo,
    RawAgentEvent,
    Status,
)
from batten.protocols.maestro.registry import (
    ALREADY_HELD,
    HELD_ELSEWHERE,
    NOT_ITS_OWN,
    Entitled,
    Registry,
)
from batten.protocols.maestro.roster import NO_CONNECTION, NO_SUBSCRIPTION, Gone, Most, Timings
from batten.protocols.maestro.snapshot import RuntimeState
from batten.protocols.maestro.vocabulary import RequestType
from tests.protocols.sharing import Shared

PROMPT = Prompt(content="go on")
STATUS = Status(message="well")
RAW = RawAgentEvent(event_type="x", event={})


@pytest.fixture
def shared() -> Shared:
    return Shared()


@pytest.fixture
def registry(shared: Shared) -> Registry:
    return shared.registry


def owner(registry: Registry, subscription_id: str) -> str:
    return registry.subscription(subscription_id).connection.connection_id


def test_the_first_controller_has_the_lease_and_viewers_never(registry: Registry) -> None:
    controller = registry.subscribe(SubscribeAsk())
    viewer = registry.subscribe(SubscribeAsk(role="viewer", take_control=True))
    assert registry.heartbeat(subscription_id=controller).controller_lease_granted
    watching = registry.heartbeat(subscription_id=viewer)
    assert not watching.controller_lease_granted
    assert watching.controller_connection_id == owner(registry, controller)


def test_a_second_controller_is_refused_and_leaves_no_trace(registry: Registry) -> None:
    registry.subscribe(SubscribeAsk())
    before = registry.shown(RuntimeState())
    with pytest.raises(Conflict, match=ALREADY_HELD) as refused:
        registry.subscribe(SubscribeAsk(role="controller"))
    assert refused.value.code == "controller_lease_held"
    with pytest.raises(Conflict, match=ALREADY_HELD):
        registry.connect(ConnectAsk())
    assert registry.shown(RuntimeState()) == before


def test_a_subscription_too_many_leaves_no_trace() -> None:
    registry = Shared(most=Most(subscriptions=1)).registry
    registry.subscribe(SubscribeAsk())
    before = registry.shown(RuntimeState())
    for subscribe in (registry.subscribe, registry.look_on):
        with pytest.raises(CallerError) as refused:
            subscribe(SubscribeAsk(take_control=True))
        assert refused.value.code == "quota_exceeded"
    assert registry.shown(RuntimeState()) == before


def test_control_that_is_taken_leaves_the_other_listening_but_silent(registry: Registry) -> None:
    first = registry.subscribe(SubscribeAsk())
    second = registry.subscribe(SubscribeAsk(take_control=True))
    beat = registry.heartbeat(subscription_id=first)
    assert (beat.controller_lease_granted, beat.controller_connection_id) == (
        False,
        owner(registry, second),
    )
    with pytest.raises(Conflict, match=HELD_ELSEWHERE):
        registry.entitle(PROMPT, subscription_id=first)
    assert registry.entitle(PROMPT, subscription_id=second) == Entitled("conn_2", False)
    assert registry.connect(ConnectAsk(connection_id="conn_1", take_control=True)) == "conn_1"
    assert registry.entitle(PROMPT, "conn_1") == Entitled("conn_1", False)


@pytest.mark.parametrize("message", [PROMPT, Interrupt(), Cancel(), ShutDown()])
def test_a_viewer_may_only_greet(registry: Registry, message: Incoming) -> None:
    viewer = registry.subscribe(SubscribeAsk(role="viewer"))
    for subscription_id, connection_id in ((viewer, None), (None, "conn_1")):
        with pytest.raises(Refused, match=VIEWER_REFUSED):
            registry.entitle(message, connection_id, subscription_id)
    assert registry.entitle(Hello(), "conn_1") == Entitled("conn_1", False)
    assert registry.controller_connection_id is None


def test_a_controller_without_the_lease_claims_it_by_speaking(registry: Registry) -> None:
    first = registry.subscribe(SubscribeAsk(protocol_version="1"))
    registry.subscribe(SubscribeAsk(take_control=True, protocol_version="2"))
    registry.disconnect("conn_2")
    assert registry.controller_connection_id is None
    assert registry.entitle(PROMPT, subscription_id=first) == Entitled("conn_1", True)
    assert registry.entitle(PROMPT, subscription_id=first) == Entitled("conn_1", False)
    assert registry.shown(RuntimeState()).client_protocol_version == "1"


def test_a_greeting_that_is_refused_claims_nothing(registry: Registry) -> None:
    registry.subscribe(SubscribeAsk())
    registry.connect(ConnectAsk(take_control=True))
    registry.disconnect("conn_2")
    with pytest.raises(CallerError, match=ROLE_CHANGED):
        registry.entitle(Hello(role="viewer"), "conn_1")
    assert registry.controller_connection_id is None
    assert registry.entitle(Hello(role="controller"), "conn_1") == Entitled("conn_1", True)
    registry.connect(ConnectAsk(take_control=True))
    assert registry.entitle(Hello(), "conn_1") == Entitled("conn_1", False)
    assert registry.controller_connection_id == "conn_3"


def test_who_does_not_say_who_it_is_may_speak_only_while_nobody_has_the_lease(
    registry: Registry,
) -> None:
    assert registry.entitle(PROMPT) == Entitled(None, False)
    registry.connect(ConnectAsk())
    for message in (PROMPT, Hello()):
        with pytest.raises(Conflict, match=HELD_ELSEWHERE):
            registry.entitle(message)
    registry.disconnect("conn_1")
    assert registry.entitle(PROMPT) == Entitled(None, False)


def test_a_message_is_entitled_by_ids_that_are_known_and_belong_together(
    registry: Registry,
) -> None:
    mine = registry.subscribe(SubscribeAsk())
    registry.subscribe(SubscribeAsk(role="viewer"))
    with pytest.raises(NotFound, match=NO_SUBSCRIPTION):
        registry.entitle(PROMPT, subscription_id="sub_9")
    with pytest.raises(Refused, match=NO_CONNECTION):
        registry.entitle(PROMPT, "conn_9", mine)
    with pytest.raises(Refused, match=NOT_ITS_OWN):
        registry.entitle(PROMPT, "conn_2", mine)
    assert registry.entitle(PROMPT, "conn_1", mine) == Entitled("conn_1", False)


def test_a_utility_needs_the_capability_of_who_asks_for_it(registry: Registry) -> None:
    read = FileRead(read_id="r", path="notes.md")
    reads = AskedCapabilities(utility_operations=("file_read",))
    with pytest.raises(Refused, match="utility_file_read requires file_read capability"):
        registry.entitle(read)
    registry.connect(ConnectAsk())
    with pytest.raises(Refused, match="utility_file_read requires file_read capability"):
        registry.entitle(read, "conn_1")
    registry.connect(ConnectAsk(connection_id="conn_1", capabilities=reads))
    assert registry.entitle(read, "conn_1") == Entitled("conn_1", False)
    registry.disconnect("conn_1")
    assert registry.entitle(read) == Entitled(None, False)


def test_who_connected_to_subscribe_need_not_name_its_connection(registry: Registry) -> None:
    connection_id = registry.connect(ConnectAsk(client_info=ClientInfo("desk")))
    first = registry.subscribe(SubscribeAsk())
    assert owner(registry, first) == connection_id
    with pytest.raises(Conflict, match=ALREADY_HELD):
        registry.subscribe(SubscribeAsk())
    second = registry.subscribe(SubscribeAsk(connection_id=connection_id))
    assert owner(registry, second) == connection_id
    assert registry.info(connection_id).connection_count == 1


def test_who_takes_control_is_not_taken_for_who_had_it(registry: Registry) -> None:
    connection_id = registry.connect(ConnectAsk())
    taker = registry.subscribe(SubscribeAsk(take_control=True))
    viewer = registry.subscribe(SubscribeAsk(role="viewer"))
    assert len({connection_id, owner(registry, taker), owner(registry, viewer)}) == 3


def test_a_connection_that_is_not_there_is_a_different_fault_for_each_ask(
    registry: Registry,
) -> None:
    with pytest.raises(NotFound, match=NO_CONNECTION):
        registry.connect(ConnectAsk(connection_id="conn_9"))
    with pytest.raises(NotFound, match=NO_CONNECTION):
        registry.heartbeat("conn_9")
    with pytest.raises(NotFound, match=NO_SUBSCRIPTION):
        registry.disconnect(subscription_id="sub_9")
    with pytest.raises(NotFound, match=NO_SUBSCRIPTION):
        registry.unsubscribe("sub_9")
    with pytest.raises(CallerError, match=NO_CONNECTION) as refused:
        registry.subscribe(SubscribeAsk(connection_id="conn_9"))
    assert type(refused.value) is CallerError
    with pytest.raises(CallerError, match="one of them says who asks"):
        registry.heartbeat()


def test_a_known_subscription_decides_whose_heartbeat_it_is(registry: Registry) -> None:
    viewer = registry.subscribe(SubscribeAsk(role="viewer"))
    registry.connect(ConnectAsk())
    assert registry.heartbeat("conn_2", viewer).connection_id == "conn_1"
    assert registry.heartbeat("conn_2", "sub_9").connection_id == "conn_2"


def test_a_role_cannot_change(registry: Registry) -> None:
    registry.connect(ConnectAsk(role="viewer"))
    with pytest.raises(Conflict, match=ROLE_CHANGED):
        registry.connect(ConnectAsk(connection_id="conn_1", role="controller"))
    with pytest.raises(CallerError, match=ROLE_CHANGED) as refused:
        registry.subscribe(SubscribeAsk(connection_id="conn_1", role="controller"))
    assert type(refused.value) is CallerError
    with pytest.raises(CallerError, match=ROLE_CHANGED):
        registry.greet("conn_1", Hello(role="controller"))
    assert owner(registry, registry.subscribe(SubscribeAsk(connection_id="conn_1"))) == "conn_1"
    assert registry.controller_connection_id is None


@pytest.mark.parametrize("kind", ["mcp_elicitation", "user_input"])
def test_a_viewer_cannot_come_to_answer_questions(registry: Registry, kind: RequestType) -> None:
    asked = AskedCapabilities(server_requests=("approval", kind))
    wrong = f"viewer headless connections cannot negotiate {kind} requests"
    with pytest.raises(CallerError, match=wrong):
        registry.connect(ConnectAsk(role="viewer", capabilities=asked))
    with pytest.raises(CallerError, match=wrong):
        registry.subscribe(SubscribeAsk(role="viewer", capabilities=asked))
    with pytest.raises(CallerError, match=wrong):
        registry.look_on(SubscribeAsk(role="viewer", capabilities=asked))
    assert registry.shown(RuntimeState()).connections == ()


def test_a_viewer_that_would_decide_retries_is_let_in_and_asked_nothing(
    registry: Registry,
) -> None:
    asked = AskedCapabilities(server_requests=("tool_retry",))
    registry.connect(ConnectAsk(role="viewer", capabilities=asked))
    assert registry.serves == frozenset()
    with pytest.raises(CallerError, match="cannot negotiate tool_retry requests"):
        registry.greet("conn_1", Hello(capabilities=asked.plain()))


def test_what_is_left_out_is_inherited_by_new_connections_and_kept_by_known_ones(
    registry: Registry,
) -> None:
    registry.connect(
        ConnectAsk(
            protocol_version="2026-04-02",
            client_info=ClientInfo("desk"),
            capabilities=AskedCapabilities(
                server_requests=("approval", "user_input"), raw_agent_events=True
            ),
            opt_out_notifications=("status",),
        )
    )
    registry.connect(ConnectAsk(role="viewer", client_info=ClientInfo("wall")))
    desk, wall = registry.shown(RuntimeState()).connections
    assert (wall.client_info, wall.client_protocol_version) == (ClientInfo("wall"), "2026-04-02")
    assert wall.opt_out_notifications == ("status",)
    assert wall.capabilities == ClientCapabilities(
        server_requests=("approval",), raw_agent_events=True
    )
    registry.connect(ConnectAsk(connection_id="conn_1", opt_out_notifications=()))
    again = registry.shown(RuntimeState()).connections[0]
    assert (again.client_info, again.capabilities) == (desk.client_info, desk.capabilities)
    assert again.opt_out_notifications == ()


def test_what_is_inherited_is_what_the_controller_said_last(registry: Registry) -> None:
    registry.connect(ConnectAsk(protocol_version="1"))
    registry.connect(ConnectAsk(role="viewer", protocol_version="2"))
    registry.greet("conn_1", Hello(protocol_version="3"))
    registry.greet("conn_2", Hello(protocol_version="4"))
    assert registry.shown(RuntimeState()).client_protocol_version == "3"
    registry.disconnect("conn_1")
    registry.connect(ConnectAsk(role="viewer"))
    assert registry.info("conn_3").client_protocol_version == "3"


def test_requests_are_put_as_the_holder_of_the_lease_agreed(registry: Registry) -> None:
    assert registry.serves == frozenset()
    registry.connect(ConnectAsk(capabilities=AskedCapabilities(server_requests=("tool_retry",))))
    assert registry.serves == {"tool_retry"}
    approves = AskedCapabilities(server_requests=("approval",), endings=True)
    registry.connect(ConnectAsk(take_control=True, capabilities=approves))
    assert registry.serves == {"approval"}
    assert (registry.wants_endings, registry.wants_raw) == (True, False)
    agreed = registry.greet("conn_2", Hello(capabilities=ClientCapabilities(raw_agent_events=True)))
    assert (agreed.connection_id, agreed.controller_connection_id) == ("conn_2", "conn_2")
    assert registry.serves == frozenset()
    assert (registry.wants_endings, registry.wants_raw) == (False, True)


def test_a_greeting_is_answered_with_who_has_the_lease_and_until_when(registry: Registry) -> None:
    registry.connect(ConnectAsk())
    registry.connect(ConnectAsk(role="viewer"))
    for connection_id in ("conn_1", "conn_2"):
        agreed = registry.greet(connection_id, Hello())
        assert agreed.connection_id == connection_id
        assert (agreed.controller_connection_id, agreed.lease_expires_at) == (
            "conn_1",
            "1970-01-01T00:17:25.000Z",
        )


def test_a_subscription_is_spared_by_its_own_list_or_else_its_connections(
    registry: Registry,
) -> None:
    registry.connect(ConnectAsk(opt_out_notifications=("status", "heartbeat")))
    plain = registry.subscription(registry.subscribe(SubscribeAsk()))
    own = registry.subscription(
        registry.subscribe(SubscribeAsk(connection_id="conn_1", opt_out_notifications=()))
    )
    assert own.hears(STATUS) is STATUS
    assert own.wants_heartbeats
    # The list that was given last is the connection's too; a greeting replaces it again.
    assert plain.opted_out == ()
    registry.greet("conn_1", Hello(opt_out_notifications=("status", "heartbeat")))
    assert (plain.hears(STATUS), plain.wants_heartbeats) == (None, False)
    assert own.hears(STATUS) is STATUS


def test_raw_events_are_heard_only_where_they_were_negotiated(registry: Registry) -> None:
    raw = AskedCapabilities(raw_agent_events=True)
    plain = registry.subscription(registry.subscribe(SubscribeAsk(role="viewer")))
    curious = registry.subscription(
        registry.subscribe(SubscribeAsk(role="viewer", capabilities=raw))
    )
    assert (plain.hears(RAW), curious.hears(RAW)) == (None, RAW)


def test_who_looks_on_never_has_the_lease_and_inherits_nothing(registry: Registry) -> None:
    registry.connect(
        ConnectAsk(
            opt_out_notifications=("status",),
            capabilities=AskedCapabilities(raw_agent_events=True),
        )
    )
    registry.disconnect("conn_1")
    stream = registry.look_on(SubscribeAsk())
    looking = registry.subscription(stream)
    assert (looking.hears(STATUS), looking.hears(RAW)) == (STATUS, None)
    assert registry.controller_connection_id is None
    assert registry.unsubscribe(stream) == looking.connection.connection_id
    assert registry.subscriber_count == 0


def test_the_last_subscription_takes_its_connection_and_the_lease_along(
    registry: Registry,
) -> None:
    first = registry.subscribe(SubscribeAsk())
    second = registry.subscribe(SubscribeAsk(connection_id="conn_1"))
    shown = registry.shown(RuntimeState())
    assert (shown.subscriber_count, shown.controller_subscription_id) == (2, first)
    assert registry.unsubscribe(first) is None
    assert registry.shown(RuntimeState()).controller_subscription_id == second
    assert registry.unsubscribe(second) == "conn_1"
    shown = registry.shown(RuntimeState())
    assert (shown.connections, shown.controller_connection_id) == ((), None)


def test_a_connection_that_closes_leaves_the_others_as_they_are(registry: Registry) -> None:
    registry.subscribe(SubscribeAsk())
    viewer = registry.subscribe(SubscribeAsk(role="viewer"))
    registry.subscribe(SubscribeAsk(connection_id="conn_1"))
    closed = registry.disconnect(subscription_id="sub_1")
    assert (closed.controller_connection_id, closed.disconnected_subscription_ids) == (
        None,
        ("sub_1", "sub_3"),
    )
    assert registry.subscriber_count == 1
    assert not registry.heartbeat(subscription_id=viewer).controller_lease_granted
    assert registry.clear() == Gone(("conn_2",), (viewer,))
    assert registry.shown(RuntimeState()).connections == ()


def test_the_state_shows_every_connection_with_what_it_has(
    registry: Registry, shared: Shared
) -> None:
    registry.connect(ConnectAsk())
    first = registry.subscribe(SubscribeAsk())
    registry.subscribe(SubscribeAsk(connection_id="conn_1"))
    registry.attached(first, True)
    registry.connect(ConnectAsk(role="viewer"))
    state = registry.shown(RuntimeState())
    controller, viewer = state.connections
    assert (controller.subscription_count, controller.attached_subscription_count) == (2, 1)
    assert (controller.controller_lease_granted, viewer.controller_lease_granted) == (True, False)
    assert controller.lease_expires_at == "1970-01-01T00:17:25.000Z"
    assert viewer.lease_expires_at is None
    assert (state.connection_count, state.connection_role) == (2, "controller")
    told = registry.info("conn_2")
    assert (told.role, told.connections, told.lease_expires_at) == (
        "viewer",
        state.connections,
        controller.lease_expires_at,
    )
    shared.now += 10
    registry.heartbeat("conn_1")
    assert registry.info("conn_2").lease_expires_at == "1970-01-01T00:17:35.000Z"


def test_what_a_restored_state_says_of_a_client_stays_until_a_controller_comes(
    registry: Registry,
) -> None:
    restored = RuntimeState(client_info=ClientInfo("before"), connection_count=3)
    registry.connect(ConnectAsk(role="viewer"))
    assert registry.shown(restored).client_info == ClientInfo("before")
    assert registry.shown(restored).connection_count == 1
    registry.connect(ConnectAsk())
    assert registry.shown(restored).client_info is UNSET


def test_a_connection_expires_when_it_was_not_heard_of_and_its_lease_with_it(
    registry: Registry, shared: Shared
) -> None:
    registry.connect(ConnectAsk())
    shared.now += 45
    assert registry.expire() == Gone((), ())
    registry.heartbeat("conn_1")
    for act in (
        lambda: registry.entitle(PROMPT, "conn_1"),
        lambda: registry.connect(ConnectAsk(connection_id="conn_1")),
        lambda: registry.entitle(Hello(), "conn_1"),
    ):
        shared.now += 45
        assert registry.expire() == Gone((), ())
        act()
    shared.now += 45.001
    assert registry.expire() == Gone(("conn_1",), ())
    assert registry.controller_connection_id is None
    with pytest.raises(NotFound, match=NO_CONNECTION):
        registry.heartbeat("conn_1")
    assert registry.connect(ConnectAsk()) == "conn_2"


def test_a_clock_that_is_put_back_keeps_nobody_for_longer_than_it_should(
    registry: Registry, shared: Shared
) -> None:
    stream = registry.subscribe(SubscribeAsk(role="viewer"))
    registry.connect(ConnectAsk())
    shared.now -= 86_400
    assert registry.expire() == Gone((), ())
    shared.now += 31
    assert registry.expire() == Gone((), (stream,))
    shared.now += 15
    assert registry.expire() == Gone(("conn_1", "conn_2"), ())


def test_a_connection_with_a_stream_never_expires_and_its_time_runs_when_the_stream_ends(
    registry: Registry, shared: Shared
) -> None:
    stream = registry.subscribe(SubscribeAsk())
    registry.attached(stream, True)
    shared.now += 100_000
    assert registry.expire() == Gone((), ())
    registry.attached(stream, False)
    shared.now += 30
    assert registry.expire() == Gone((), ())
    shared.now += 1
    assert registry.expire() == Gone((), (stream,))
    assert registry.heartbeat("conn_1").controller_lease_granted
    shared.now += 46
    assert registry.expire() == Gone(("conn_1",), ())
    registry.attached(stream, False)  # a stream may end after all else


def test_two_streams_on_a_subscription_are_both_to_end_before_it_is_detached(
    registry: Registry, shared: Shared
) -> None:
    stream = registry.subscribe(SubscribeAsk())
    registry.attached(stream, True)
    registry.attached(stream, True)
    registry.attached(stream, False)
    shared.now += 100_000
    assert registry.expire() == Gone((), ())


def test_a_subscription_that_nobody_reads_expires_though_its_connection_lives(
    registry: Registry, shared: Shared
) -> None:
    read = registry.subscribe(SubscribeAsk())
    unread = registry.subscribe(SubscribeAsk(connection_id="conn_1"))
    registry.attached(read, True)
    shared.now += 31
    assert registry.expire() == Gone((), (unread,))
    with pytest.raises(NotFound, match=NO_SUBSCRIPTION):
        registry.attached(unread, True)
    assert registry.subscriber_count == 1


def test_times_are_as_they_are_set() -> None:
    shared = Shared(Timings(heartbeat_ms=10, connection_idle_ms=30, subscription_idle_ms=20))
    subscription_id = shared.registry.subscribe(SubscribeAsk())
    beat = shared.registry.heartbeat(subscription_id=subscription_id)
    assert beat.heartbeat_interval_ms == 10
    assert beat.lease_expires_at == "1970-01-01T00:16:40.030Z"
    shared.now += 0.025
    assert shared.registry.expire() == Gone((), (subscription_id,))
