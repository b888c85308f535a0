"""Who may call the runtime, how often, and what it refuses to start with."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any, Self

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from batten.contract.envelope import decode_fact
from batten.contract.facts import RunQueued
from batten.coordination.rejection import Rejection
from batten.journal.sqlite import SqliteJournal
from batten.serve.grpc.identity import Identity
from batten.serve.grpc.rates import Rates
from batten.serve.grpc.signed_tokens import JwtOptions, JwtVerifier
from batten.serve.http.keys import KeyStore
from batten.sinks.audit.log import AuditLog, AuditQuery
from tests.coordination.given import start_message
from tests.coordination.published import core, sdk
from tests.serve.conversing import eventually
from tests.serve.grpc.running import Server, bearer, grpc, plain_stub, running, stubs

jwt: Any = import_module("jwt")
wire: Any = import_module("batten.serve.grpc.wire")
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TOKENS = [
    {"token": "lead-token", "sender": "lead"},
    {"token": "quorum-token", "sender": "q", "allowed_modes": ["macp.mode.quorum.v1"]},
    {"token": "watch-token", "sender": "eye", "can_start_sessions": False, "is_observer": True},
    {"token": "one-token", "sender": "one", "max_open_sessions": 1},
    {"token": "admin-token", "sender": "admin", "can_manage_mode_registry": True},
]


def start(stub: Any, token: str, sender: str = "", **fields: Any) -> Any:
    fields.setdefault("session_id", sdk.new_session_id())
    message = start_message(sender=sender, **fields)
    request = core.SendRequest(envelope=wire.write_envelope(message))
    return stub.Send(request, metadata=(*bearer(token), ("traceparent", CALLER))).ack


def status_of(call: Callable[[], Any]) -> tuple[str, str]:
    """The gRPC status of a failing call, and its code of the registry."""
    with pytest.raises(grpc.RpcError) as failed:
        call()
    trailing = dict(failed.value.trailing_metadata())
    return failed.value.code().name, trailing.get("macp-error-code", "")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("guarded")
    file = home / "tokens.json"
    file.write_text(json.dumps({"tokens": TOKENS}))
    with running(home, "--tokens", str(file)) as started:
        yield started


def test_token_gives_the_sender_and_no_other(guarded: Server) -> None:
    with plain_stub(guarded) as stub:
        assert start(stub, "lead-token").ok
        assert start(stub, "wrong").error.code == "UNAUTHENTICATED"
        guesses = [start(stub, f"wrong-{number}").error.code for number in range(40)]
        assert guesses[:5] == ["UNAUTHENTICATED"] * 5
        assert guesses[-5:] == ["RATE_LIMITED"] * 5
        assert start(stub, "lead-token", sender="admin").error.code == "UNAUTHENTICATED"
        call = core.ListSessionsRequest()
        assert status_of(lambda: stub.ListSessions(call)) == ("UNAUTHENTICATED",) * 2
        # x-macp-token works too.
        stub.ListSessions(call, metadata=(("x-macp-token", "lead-token"),))


def test_restricted_tokens_are_held_to_their_rights(guarded: Server) -> None:
    with plain_stub(guarded) as stub:
        assert start(stub, "quorum-token").error.code == "FORBIDDEN"
        assert start(stub, "watch-token").error.code == "FORBIDDEN"
        assert start(stub, "one-token").ok
        assert start(stub, "one-token").error.code == "RATE_LIMITED"
        request = wire.policies.RegisterPolicyRequest(
            policy_descriptor=wire.policies.PolicyDescriptor(
                policy_id="policy.x", mode="*", rules="{}", schema_version=1
            )
        )
        assert status_of(lambda: stub.RegisterPolicy(request, metadata=bearer("lead-token"))) == (
            "PERMISSION_DENIED",
            "FORBIDDEN",
        )
        assert stub.RegisterPolicy(request, metadata=bearer("admin-token")).ok


def test_who_changes_modes_and_policies_is_audited(guarded: Server) -> None:
    admin = bearer("admin-token")
    policy = wire.policies.PolicyDescriptor(
        policy_id="policy.audited", mode="*", rules="{}", schema_version=1
    )
    mode = core.ModeDescriptor(
        mode="ext.audited.v1",
        mode_version="1.0.0",
        message_types=["Say", "Commitment"],
        terminal_message_types=["Commitment"],
    )
    with plain_stub(guarded) as stub:
        policies = wire.policies
        register = policies.RegisterPolicyRequest(policy_descriptor=policy)
        assert stub.RegisterPolicy(register, metadata=admin).ok
        assert not stub.RegisterPolicy(register, metadata=admin).ok
        gone = policies.UnregisterPolicyRequest(policy_id="policy.audited")
        assert stub.UnregisterPolicy(gone, metadata=admin).ok
        extended = core.RegisterExtModeRequest(mode_descriptor=mode)
        made = stub.RegisterExtMode(extended, metadata=admin)
        assert made.ok, made.error
        ended = core.UnregisterExtModeRequest(mode="ext.audited.v1")
        assert stub.UnregisterExtMode(ended, metadata=admin).ok
    with closing(AuditLog.open(str(guarded.home))) as log:
        entries = [
            (one.actor, one.action, one.resource_id)
            for one in reversed(log.find(AuditQuery())[0])
            if "audited" in (one.resource_id or "")
        ]
    assert entries == [
        ("admin", "policy.registered", "policy.audited"),
        ("admin", "policy.unregistered", "policy.audited"),
        ("admin", "mode.registered", "ext.audited.v1"),
        ("admin", "mode.unregistered", "ext.audited.v1"),
    ]


async def test_a_session_belongs_to_the_trace_of_the_call_that_started_it(
    guarded: Server,
) -> None:
    with plain_stub(guarded) as stub:
        assert start(stub, "lead-token").ok
    journal = SqliteJournal.open(guarded.home, read_only=True)
    found = [decode_fact(one.body) for one in await journal.feed()]
    journal.close()
    queued = [one for one in found if isinstance(one, RunQueued)]
    assert {one.traceparent for one in queued} == {CALLER}


def test_observer_sees_foreign_sessions_and_others_do_not(guarded: Server) -> None:
    with plain_stub(guarded) as stub:
        ack = start(stub, "lead-token")
        request = core.GetSessionRequest(session_id=ack.session_id)
        seen = stub.GetSession(request, metadata=bearer("watch-token"))
        assert seen.metadata.initiator == "lead"
        assert status_of(lambda: stub.GetSession(request, metadata=bearer("one-token"))) == (
            "PERMISSION_DENIED",
            "FORBIDDEN",
        )
        missing = core.GetSessionRequest(session_id="unknown")
        assert status_of(lambda: stub.GetSession(missing, metadata=bearer("watch-token"))) == (
            "NOT_FOUND",
            "SESSION_NOT_FOUND",
        )


def test_api_keys_of_the_home_are_tokens_and_close_development_mode(tmp_path: Path) -> None:
    _, key = KeyStore(str(tmp_path)).create("ada", "operator")
    with running(tmp_path) as server, plain_stub(server) as stub:
        assert start(stub, key, sender="ada").ok
        assert start(stub, "ada").error.code == "UNAUTHENTICATED"


def test_a_revoked_key_is_refused_though_it_was_known(tmp_path: Path) -> None:
    store = KeyStore(str(tmp_path))
    (_, key), (_, other) = store.create("ada", "operator"), store.create("bea", "operator")
    with running(tmp_path) as server, plain_stub(server) as stub:
        assert start(stub, key, sender="ada").ok
        assert start(stub, key, sender="ada").ok
        store.revoke("ada")
        eventually(lambda: start(stub, key).error.code == "UNAUTHENTICATED")
        assert start(stub, other, sender="bea").ok


def test_a_first_key_closes_development_mode_to_names_that_were_known(tmp_path: Path) -> None:
    with running(tmp_path) as server, plain_stub(server) as stub:
        assert start(stub, "ann", sender="ann").ok
        KeyStore(str(tmp_path)).create("ada", "operator")
        eventually(lambda: start(stub, "ann").error.code == "UNAUTHENTICATED")


def test_agent_id_header_is_an_identity_in_development_only(
    server: Server, guarded: Server
) -> None:
    call, metadata = core.ListSessionsRequest(), (("x-macp-agent-id", "ann"),)
    with plain_stub(server) as stub:
        stub.ListSessions(call, metadata=metadata)
    with plain_stub(guarded) as stub:
        assert status_of(lambda: stub.ListSessions(call, metadata=metadata))[0] == "UNAUTHENTICATED"


class Issuer:
    """Signs tokens, and serves its keys over HTTP until it is left.

    To close its socket is not enough: the thread would ask the kernel about it without a pause,
    for as long as there are tests.
    """

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key()))
        self.jwks = json.dumps({"keys": [{**public, "kid": "k1", "alg": "ES256", "use": "sig"}]})
        jwks = self.jwks.encode()

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(jwks)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Say nothing."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/jwks"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.shutdown()
        self.http.server_close()

    def token(self, key: Any = None, **claims: Any) -> str:
        named = {
            "iss": "https://issuer.example",
            "aud": "macp-runtime",
            "exp": int(time.time()) + 60,
            "sub": "ada",
            **claims,
        }
        text: str = jwt.encode(named, key or self.key, algorithm="ES256", headers={"kid": "k1"})
        return text


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer() as made:
        yield made


def test_signed_tokens_are_verified_with_the_issuers_keys(tmp_path: Path, issuer: Issuer) -> None:
    flags = ("--jwt-issuer", "https://issuer.example", "--jwks", issuer.url)
    with running(tmp_path, *flags) as server, plain_stub(server) as stub:
        assert start(stub, issuer.token(), sender="ada").ok
        scopes = {"can_start_sessions": False}
        assert start(stub, issuer.token(macp_scopes=scopes)).error.code == "FORBIDDEN"
        stranger = ec.generate_private_key(ec.SECP256R1())
        for bad in (
            issuer.token(exp=int(time.time()) - 60),
            issuer.token(aud="another"),
            issuer.token(iss="https://evil.example"),
            issuer.token(key=stranger),
            "a.b.c",
        ):
            assert start(stub, bad).error.code == "UNAUTHENTICATED"


def test_a_signed_token_ends_though_it_was_verified(issuer: Issuer) -> None:
    verify = JwtVerifier(JwtOptions(issuer="https://issuer.example", jwks=issuer.jwks))
    token = issuer.token(exp=int(time.time()) + 2)
    assert verify(token) == verify(token) == Identity(sender="ada")

    def is_refused() -> bool:
        try:
            verify(token)
        except Rejection as rejection:
            return rejection.macp_code == "UNAUTHENTICATED"
        return False

    eventually(is_refused)


def certificate(directory: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = directory / "cert.pem", directory / "key.pem"
    certificate_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate_file, key_file


def test_runtime_serves_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    flags = ("--tls-cert", str(cert), "--tls-key", str(key))
    with running(tmp_path, *flags) as server:
        port = server.address.rpartition(":")[2]
        trusted = grpc.ssl_channel_credentials(cert.read_bytes())
        with grpc.secure_channel(f"localhost:{port}", trusted) as channel:
            stub = stubs.MACPRuntimeServiceStub(channel)
            assert start(stub, "lead").ok


def test_health_and_reflection_answer_without_a_token(guarded: Server) -> None:
    health: Any = import_module("grpc_health.v1.health_pb2")
    health_rpcs: Any = import_module("grpc_health.v1.health_pb2_grpc")
    reflection: Any = import_module("grpc_reflection.v1alpha.reflection_pb2")
    reflection_rpcs: Any = import_module("grpc_reflection.v1alpha.reflection_pb2_grpc")
    with grpc.insecure_channel(guarded.address) as channel:
        asked = health.HealthCheckRequest(service="macp.v1.MACPRuntimeService")
        answer = health_rpcs.HealthStub(channel).Check(asked)
        assert answer.status == health.HealthCheckResponse.SERVING
        listing = reflection.ServerReflectionRequest(list_services="")
        stub = reflection_rpcs.ServerReflectionStub(channel)
        (found,) = list(stub.ServerReflectionInfo(iter([listing])))
        names = {service.name for service in found.list_services_response.service}
    assert {"macp.v1.MACPRuntimeService", "grpc.health.v1.Health"} <= names


def test_calls_that_break_the_protocol_have_their_status(server: Server) -> None:
    with plain_stub(server) as stub:
        assert status_of(lambda: stub.Initialize(core.InitializeRequest()))[0] == "INVALID_ARGUMENT"
        old = core.InitializeRequest(supported_protocol_versions=["0.1"])
        assert status_of(lambda: stub.Initialize(old)) == (
            "FAILED_PRECONDITION",
            "UNSUPPORTED_PROTOCOL_VERSION",
        )
        assert status_of(lambda: stub.Send(core.SendRequest()))[0] == "INVALID_ARGUMENT"
        other = core.GetManifestRequest(agent_id="zoe")
        assert status_of(lambda: stub.GetManifest(other)) == ("NOT_FOUND", "AGENT_NOT_FOUND")
        both = core.StreamSessionRequest(subscribe_session_id="x")
        both.envelope.session_id = "x"
        frames = iter([both])
        assert status_of(lambda: list(stub.StreamSession(frames, metadata=bearer("a")))) == (
            "INVALID_ARGUMENT",
            "INVALID_REQUEST",
        )
        unnamed = core.GetDecisionReceiptRequest()
        assert status_of(lambda: stub.GetDecisionReceipt(unnamed))[0] == "UNIMPLEMENTED"
        crowd = core.SendRequest(
            envelope=wire.envelopes.Envelope(
                macp_version="1.0",
                mode="m",
                message_type="X",
                message_id="1",
                session_id="s",
                payload=bytes(1_048_577),
            )
        )
        assert stub.Send(crowd, metadata=bearer("a")).ack.error.code == "PAYLOAD_TOO_LARGE"


def test_rate_limit_slides_over_a_minute() -> None:
    now = 0.0
    rates = Rates(starts=1, messages=2, clock=lambda: now)
    rates.check("ann", starts=False)
    rates.check("ann", starts=True)
    now = 30.0
    rates.check("ann", starts=False)
    rates.check("ben", starts=False)
    with pytest.raises(Rejection, match="2 messages a minute"):
        rates.check("ann", starts=False)
    with pytest.raises(Rejection, match="1 sessions a minute"):
        rates.check("ann", starts=True)
    now = 60.0
    rates.check("ann", starts=False)
    with pytest.raises(Rejection):
        rates.check("ann", starts=False)


def test_policies_of_a_directory_cannot_be_changed(tmp_path: Path) -> None:
    directory = tmp_path / "policies"
    directory.mkdir()
    written = {"policy_id": "policy.file", "rules": {"voting": {"algorithm": "majority"}}}
    (directory / "one.json").write_text(json.dumps(written))
    with running(tmp_path, "--policies", str(directory)) as server:
        client = server.client("lead")
        assert not client.initialize().capabilities.policy_registry.register_policy
        ids = [one.policy_id for one in client.list_policies().descriptors]
        assert ids == ["policy.default", "policy.file"]
        with pytest.raises(sdk.MacpSdkError) as refused:
            client.unregister_policy("policy.file")
        assert refused.value.macp_code == "REGISTRY_READ_ONLY"
        client.close()


def test_registered_policies_and_modes_survive_a_restart(tmp_path: Path) -> None:
    policies: Any = import_module("macp_sdk.policy")
    with running(tmp_path) as server:
        client = server.client("lead")
        client.register_policy(policies.build_quorum_policy("policy.kept", "two"))
        client.register_ext_mode(
            core.ModeDescriptor(
                mode="ext.kept.v1",
                mode_version="1",
                message_types=["X", "Commitment"],
                terminal_message_types=["Commitment"],
            )
        )
        client.close()
    with running(tmp_path) as server:
        client = server.client("lead")
        assert client.get_policy("policy.kept").policy_descriptor.description == "two"
        assert "ext.kept.v1" in client.initialize().supported_modes
        client.close()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--bind", "0.0.0.0:0"], "--tls-cert"),
        (["--bind", "nowhere"], "HOST:PORT"),
        (["--tls-cert", "x"], "belong together"),
        (["--tokens", "/nowhere.json"], "cannot be read"),
        (["--jwt-issuer", "https://x.example"], "JWKS"),
        (["--policies", "/nowhere"], "policies cannot be read"),
        (["--bind", "192.0.2.1:1", "--insecure"], "cannot serve on"),
    ],
)
def test_runtime_refuses_to_start_with_a_reason(
    tmp_path: Path, flags: list[str], said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "batten", "runtime", *flags],
        env={**os.environ, "BATTEN_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode in (64, 78)
    assert said in done.stderr
