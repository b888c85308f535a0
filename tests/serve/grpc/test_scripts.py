"""The protocol's conformance scripts over real gRPC, each replayed from the journal."""

import uuid
from pathlib import Path

from batten.control.coordination import store
from batten.control.coordination.records import Keeping
from batten.coordination.payloads import COMMITMENT, Commitment, read
from batten.journal.sqlite import SqliteJournal
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from batten.serve.grpc import wire
from tests.coordination.scripts import (
    check_answer,
    each_script,
    is_part,
    load,
    messages,
    policy_of,
    start_message,
)
from tests.coordination.test_conformance import plain
from tests.serve.grpc.running import Server, bearer, plain_stub


@each_script
async def test_script_over_grpc_is_answered_as_expected_and_replays_equal(
    server: Server, path: Path
) -> None:
    script, session_id = load(path), str(uuid.uuid4())
    policy = policy_of(script)
    with plain_stub(server) as stub:
        if policy is not None:
            registering = wire.policies.RegisterPolicyRequest(
                policy_descriptor=wire.policy_descriptor(policy)
            )
            known = stub.RegisterPolicy(registering, metadata=bearer("admin"))
            assert known.ok or "already registered" in known.error
        for message, expected in [
            (start_message(script, session_id), {"expect": "accept"}),
            *messages(script, session_id),
        ]:
            request = wire.core.SendRequest(envelope=wire.write_envelope(message))
            ack = stub.Send(request, metadata=bearer(message.sender)).ack
            check_answer(expected, "" if ack.ok else ack.error.code)
        asked = wire.core.GetSessionRequest(session_id=session_id)
        found = stub.GetSession(asked, metadata=bearer(script["initiator"])).metadata
    state = script["expected_final_state"].upper()
    assert wire.envelopes.SessionState.Name(found.state) == f"SESSION_STATE_{state}"
    journal = SqliteJournal.open(server.home, read_only=True)
    try:
        keeping = Keeping(journal, Redactor(), lambda: SealKey.load(server.home))
        row = await store.find_run(keeping.journal, session_id)
        assert row is not None
        stored = await store.load(keeping, row.run_id)
        assert stored is not None
        session = stored.engine.session
    finally:
        journal.close()
    assert session.state == state
    assert is_part(script.get("expected_mode_state", {}), plain(session.mode_state))
    if "expected_resolution" in script:
        assert session.resolution is not None
        resolution = read(COMMITMENT, session.resolution)
        assert isinstance(resolution, Commitment)
        assert is_part(script["expected_resolution"], plain(resolution))
