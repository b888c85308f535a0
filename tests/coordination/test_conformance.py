"""The protocol's conformance scripts, in process: answers, state, resolution, and the replay."""

from pathlib import Path
from typing import Any

import msgspec

from batten.coordination.engine import Engine, rebuild
from batten.coordination.payloads import COMMITMENT, Commitment, read
from tests.coordination.scripts import each_script, is_part, load, play


def plain(value: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def picture(engine: Engine) -> object:
    """Everything about a session that a replay must give again."""
    session = engine.session
    return (
        session.state,
        plain(session.mode_state),
        session.resolution,
        session.ordinal,
        session.activity,
        session.deadline_ms,
        sorted(engine.ids),
    )


@each_script
def test_each_message_of_a_script_is_answered_as_expected(path: Path) -> None:
    script = load(path)
    engine, _, _ = play(script)
    session = engine.session
    assert session.state == script["expected_final_state"].upper()
    assert is_part(script.get("expected_mode_state", {}), plain(session.mode_state))
    if "expect_resolution_present" in script:
        assert (session.resolution is not None) == script["expect_resolution_present"]
    if "expected_resolution" in script:
        assert session.resolution is not None
        resolution = read(COMMITMENT, session.resolution)
        assert isinstance(resolution, Commitment)
        assert is_part(script["expected_resolution"], plain(resolution))


@each_script
def test_accepted_messages_of_a_script_fold_into_the_same_session(path: Path) -> None:
    engine, first, events = play(load(path))
    session = engine.session
    again = rebuild(first, session.mode, session.policy.descriptor, events)
    assert picture(again) == picture(engine)
