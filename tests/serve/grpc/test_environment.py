"""The variables of the published runtime that `batten runtime` reads."""

import base64
import json
import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from batten.coordination.envelope import Message
from tests.coordination.published import core
from tests.serve.grpc.running import Server, bearer, plain_stub, running
from tests.serve.grpc.test_access import TOKENS, Issuer, start, wire

jwt: Any = import_module("jwt")
SECRET = b"a secret of at least thirty-two bytes"
ISSUER = "https://issuer.example"


def shared_keys() -> str:
    secret = base64.urlsafe_b64encode(SECRET).rstrip(b"=").decode()
    return json.dumps({"keys": [{"kty": "oct", "k": secret, "kid": "s1", "alg": "HS256"}]})


def token_of_the_secret(kid: str = "s1", secret: bytes = SECRET, **claims: Any) -> str:
    named = {"iss": ISSUER, "aud": "macp-runtime", "exp": int(time.time()) + 60, "sub": "ada"}
    text: str = jwt.encode(
        {**named, **claims}, secret, algorithm="HS256", headers={"kid": kid} if kid else {}
    )
    return text


def test_tokens_signed_with_a_shared_secret_must_be_asked_for(tmp_path: Path) -> None:
    given = {"MACP_AUTH_ISSUER": ISSUER, "MACP_AUTH_JWKS_JSON": shared_keys()}
    with running(tmp_path, **given) as server, plain_stub(server) as stub:
        assert start(stub, token_of_the_secret()).error.code == "UNAUTHENTICATED"
    with (
        running(tmp_path, **given, MACP_AUTH_JWT_ALGS="RS256, hs256") as server,
        plain_stub(server) as stub,
    ):
        assert start(stub, token_of_the_secret(), sender="ada").ok
        assert start(stub, token_of_the_secret(aud="another")).error.code == "UNAUTHENTICATED"
        # The issuer's clock is ahead of ours.
        assert start(stub, token_of_the_secret(iat=int(time.time()) + 30)).ok


def test_token_that_names_no_known_key_is_tried_with_all_of_them(tmp_path: Path) -> None:
    with Issuer() as issuer:
        pass  # nobody asks it for its keys
    keys = [*json.loads(issuer.jwks)["keys"], *json.loads(shared_keys())["keys"]]
    given = {
        "MACP_AUTH_ISSUER": ISSUER,
        "MACP_AUTH_JWKS_JSON": json.dumps({"keys": keys}),
        "MACP_AUTH_JWT_ALGS": "ES256,HS256",
    }
    with running(tmp_path, **given) as server, plain_stub(server) as stub:
        for kid in ("", "rotated", "s1"):
            assert start(stub, token_of_the_secret(kid), sender="ada").ok
        assert start(stub, issuer.token(), sender="ada").ok
        forged = token_of_the_secret("", b"another secret of thirty-two bytes!")
        assert start(stub, forged).error.code == "UNAUTHENTICATED"
        # The key that it names has to be the one that signed it.
        assert start(stub, token_of_the_secret("k1")).error.code == "UNAUTHENTICATED"


def test_signed_and_fixed_tokens_work_beside_each_other(tmp_path: Path) -> None:
    with Issuer() as issuer:
        given = {
            "MACP_AUTH_ISSUER": ISSUER,
            "MACP_AUTH_AUDIENCE": "here",
            "MACP_AUTH_JWKS_JSON": issuer.jwks,
            "MACP_AUTH_JWKS_URL": "http://127.0.0.1:9/nothing-is-fetched",
            "MACP_AUTH_TOKENS_JSON": json.dumps(TOKENS),
        }
        with running(tmp_path, **given) as server, plain_stub(server) as stub:
            assert start(stub, issuer.token(aud="here"), sender="ada").ok
            assert start(stub, issuer.token()).error.code == "UNAUTHENTICATED"
            assert start(stub, "lead-token", sender="lead").ok
            # A signed token has one place only.
            signed = (("x-macp-token", issuer.token(aud="here")),)
            ack = stub.Send(
                core.SendRequest(envelope=wire.write_envelope(_signal())), metadata=signed
            ).ack
            assert ack.error.code == "UNAUTHENTICATED"


def _signal() -> Message:
    return Message(message_type="Signal", message_id="s1")


def test_limits_are_read(tmp_path: Path) -> None:
    given = {
        "MACP_SESSION_START_LIMIT_PER_MINUTE": "2",
        "MACP_MESSAGE_LIMIT_PER_MINUTE": "3",
        "MACP_MAX_PAYLOAD_BYTES": "100",
        "MACP_MAX_CONCURRENT_STREAMS": "7",
        "MACP_SHUTDOWN_DRAIN_SECS": "1",
    }
    server = Server(tmp_path, ["--bind", "127.0.0.1:0"], given)
    try:
        with plain_stub(server) as stub:
            assert [start(stub, "ann").error.code for _ in range(3)] == ["", "", "RATE_LIMITED"]
            request = core.SendRequest(envelope=wire.write_envelope(_signal()))
            acks = [stub.Send(request, metadata=bearer("ann")).ack for _ in range(4)]
            assert [ack.error.code for ack in acks] == ["", "", "", "RATE_LIMITED"]
            assert stub.Send(request, metadata=bearer("ben")).ack.ok
            request.envelope.payload = bytes(101)
            ack = stub.Send(request, metadata=bearer("ben")).ack
            assert ack.error.code == "PAYLOAD_TOO_LARGE"
    finally:
        assert server.stop() == 0
        assert server.process.stdout is not None
        server.process.stdout.close()


def test_runtime_in_memory_keeps_nothing(tmp_path: Path) -> None:
    with running(tmp_path, MACP_MEMORY_ONLY="1") as server, plain_stub(server) as stub:
        session_id = start(stub, "lead").session_id
        request = core.GetSessionRequest(session_id=session_id)
        assert stub.GetSession(request, metadata=bearer("lead")).metadata.initiator == "lead"
    assert not (tmp_path / "journal.db").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MACP_MAX_PAYLOAD_BYTES", "1 MiB"),
        ("MACP_MAX_PAYLOAD_BYTES", "0"),
        ("MACP_MESSAGE_LIMIT_PER_MINUTE", "-1"),
        ("MACP_MAX_CONCURRENT_STREAMS", "0"),
        ("MACP_SHUTDOWN_DRAIN_SECS", "soon"),
        ("MACP_AUTH_JWT_ALGS", "PS512"),
    ],
)
def test_bad_value_is_refused_by_name(tmp_path: Path, name: str, value: str) -> None:
    given = {"MACP_AUTH_ISSUER": ISSUER, "MACP_AUTH_JWKS_JSON": shared_keys(), name: value}
    done = subprocess.run(
        [sys.executable, "-m", "batten", "runtime", "--bind", "127.0.0.1:0"],
        env={**os.environ, "BATTEN_HOME": str(tmp_path), **given},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 78
    assert value in done.stderr
    assert "Traceback" not in done.stderr
