"""Artifacts in the flat shape of the protocol, and requests to create them."""

import base64
from typing import Any

import msgspec
import pytest

from batten.contract.errors import CallerError
from batten.protocols.hecate.artifacts import (
    MAX_INLINE_DIFF,
    MAX_JSON_BODY,
    ArtifactQuery,
    ArtifactReply,
    CreateArtifact,
    PatchArtifact,
    PatchStats,
    artifact_object,
    is_public,
    patch_object,
)
from batten.protocols.hecate.multipart import is_multipart, read_artifact

from .making import ARTIFACT, CHAT, RUN, TASK, patch_row, run_row

DIFF = b"--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n"


def test_a_patch_has_the_flat_shape_of_the_protocol() -> None:
    reply = ArtifactReply(artifact_object(patch_row(), run_row(), DIFF))
    assert msgspec.json.decode(msgspec.json.encode(reply)) == {
        "object": "artifact",
        "data": {
            "id": ARTIFACT,
            "kind": "patch",
            "status": "applied",
            "target_path": "a.txt",
            "base_revision": "sha256:8a4f",
            "diff": DIFF.decode(),
            "stats": {"additions": 1, "deletions": 1, "hunks": 1},
            "created_at": "2026-09-02T08:00:01.000Z",
            "applied_at": "2026-09-02T08:00:02.000Z",
            "reverted_at": None,
            "updated_at": "2026-09-02T08:00:02.000Z",
            "summary": "a.txt: 1 hunk, +1/-1",
            "size_bytes": 12,
            "sha256": "ab" * 32,
            "mime_type": "text/x-diff",
            "metadata": {
                "target_path": "a.txt",
                "base_revision": "sha256:8a4f",
                "stats": {"additions": 1, "deletions": 1, "hunks": 1},
            },
            "pinned": False,
            "run_id": RUN,
            "task_id": TASK,
            "session_id": CHAT,
            "tool_call_id": "c1",
            "produced_by_run_id": RUN,
            "produced_by_tool_call_id": "c1",
        },
    }


def test_a_proposed_patch_of_a_new_file_has_nulls_until_they_are_set() -> None:
    row = patch_row(
        status="proposed", applied_at=None, metadata={"target_path": "n", "base_revision": None}
    )
    shown = msgspec.to_builtins(artifact_object(row, run_row()))
    assert (shown["base_revision"], shown["applied_at"], shown["reverted_at"]) == (None,) * 3
    assert "diff" not in shown
    assert patch_object(artifact_object(row, None)).before_existed is False


def test_line_67_a_reverted_patch_stays_applied_and_has_the_time_of_its_revert() -> None:
    row = patch_row(reverted_at="2026-09-02T08:01:00.000Z")
    shown = artifact_object(row, run_row())
    assert (shown.status, shown.reverted_at) == ("applied", "2026-09-02T08:01:00.000Z")
    inverse = patch_row(metadata={**row.metadata, "reverted_from_artifact_id": ARTIFACT})
    assert artifact_object(inverse, run_row()).reverted_from_artifact_id == ARTIFACT


def test_another_kind_has_no_fields_of_a_patch() -> None:
    row = patch_row(
        kind="command_output",
        status="created",
        mime_type="text/plain; charset=utf-8",
        metadata={"exit_code": 0},
        applied_at=None,
        pinned=True,
    )
    shown = msgspec.to_builtins(artifact_object(row, run_row(), b"output"))
    assert shown["metadata"] == {"exit_code": 0}
    assert shown["pinned"] is True
    of_patches = {"diff", "stats", "target_path", "base_revision", "applied_at", "reverted_at"}
    assert not of_patches & set(shown)


def test_damaged_metadata_of_a_patch_are_shown_as_far_as_they_fit() -> None:
    row = patch_row(metadata={"target_path": 7, "stats": "many"})
    shown = artifact_object(row, run_row())
    assert (shown.target_path, shown.stats) == ("7", PatchStats())


def test_a_sealed_artifact_is_never_shown() -> None:
    sealed = patch_row(kind="sealed")
    assert not is_public(sealed)
    with pytest.raises(CallerError, match="is sealed"):
        artifact_object(sealed, run_row())


def test_a_long_diff_is_cut_at_a_line_and_says_so() -> None:
    body = b"+a line\n" * (MAX_INLINE_DIFF // 8 + 5)
    shown = artifact_object(patch_row(), run_row(), body)
    assert shown.diff_truncated
    assert shown.diff.endswith("+a line\n")
    assert len(shown.diff) <= MAX_INLINE_DIFF
    assert not artifact_object(patch_row(), run_row(), DIFF).diff_truncated


def test_a_patch_for_review_has_its_diff_once() -> None:
    patch = patch_object(artifact_object(patch_row(), run_row(), DIFF))
    assert (patch.diff, patch.artifact.diff) == (DIFF.decode(), "")
    assert (patch.status, patch.path, patch.before_existed) == ("applied", "a.txt", True)


def request(**fields: Any) -> bytes:
    given = {"kind": "tool_result_blob", "run_id": RUN, "metadata": {"tool_name": "x"}, **fields}
    return msgspec.json.encode(given)


def test_an_artifact_is_created_from_base64() -> None:
    body = request(body_base64=base64.b64encode(b"\0\xff").decode(), mime_type="image/png")
    made = msgspec.json.decode(body, type=CreateArtifact)
    assert (made.body_base64, made.mime_type) == (b"\0\xff", "image/png")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"body_base64": "***"},
        {"body_base64": base64.b64encode(bytes(MAX_JSON_BODY + 1)).decode()},
        {"body_base64": "", "kind": "sealed"},
        {"body_base64": "", "run_id": "run_x"},
        {"body_base64": "", "run_id": RUN + "\n"},
        {"body_base64": "", "mime_type": "text/plain\r\nX: y"},
    ],
)
def test_a_wrong_request_to_create_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(request(**fields), type=CreateArtifact)


def multipart(*parts: tuple[str, bytes], boundary: bytes = b"b-1", end: bytes = b"--") -> bytes:
    pieces = [
        b'--%b\r\nContent-Disposition: form-data; name="%b"; filename="f"\r\n\r\n%b\r\n'
        % (boundary, name.encode(), content)
        for name, content in parts
    ]
    return b"".join(pieces) + b"--" + boundary + end + b"\r\n"


def typed(name: str, content: bytes, media_type: str) -> bytes:
    """A part with a type of its own."""
    return (
        b'--b-1\r\nContent-Disposition: form-data; name="%b"\r\nContent-Type: %b\r\n\r\n%b\r\n'
        % (name.encode(), media_type.encode(), content)
    )


@pytest.mark.parametrize(
    ("kind", "said", "of_part", "expected"),
    [
        ("image", {}, "image/png", "image/png"),
        ("image", {"mime_type": "image/gif"}, "image/png", "image/gif"),
        ("patch", {}, "application/octet-stream", "text/x-diff"),
        ("patch", {}, "", "text/x-diff"),
        ("tool_result_blob", {}, "", "application/octet-stream"),
    ],
)
def test_a_body_has_the_type_of_its_metadata_its_part_or_its_kind(
    kind: str, said: dict[str, str], of_part: str, expected: str
) -> None:
    described = typed("metadata", request(kind=kind, **said), "application/json")
    data = described + typed("body", b"x", of_part) + b"--b-1--\r\n"
    assert read_artifact("multipart/form-data; boundary=b-1", data).media_type() == expected


@pytest.mark.parametrize("content", [b"", b"plain", b"\r\n--b\r\n\0\xff", bytes(range(256)) * 40])
def test_an_artifact_is_created_from_parts_with_any_bytes(content: bytes) -> None:
    data = multipart(("metadata", request()), ("body", content))
    made = read_artifact('multipart/form-data; boundary="b-1"', data)
    assert (made.body_base64, made.kind, made.run_id) == (content, "tool_result_blob", RUN)
    assert read_artifact("multipart/form-data;boundary=b-1", data) == made


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        ("multipart/form-data", multipart(("body", b"")), "with a boundary"),
        ("multipart/form-data; boundary=other", multipart(("body", b"")), "was cut off"),
        ("multipart/form-data; boundary=b-1", b"", "was cut off"),
        (
            "multipart/form-data; boundary=b-1",
            multipart(("metadata", request()), ("body", b"x"))[:-6],
            "was cut off",
        ),
        (
            "multipart/form-data; boundary=b-1",
            multipart(("metadata", request())),
            "no part named body",
        ),
        ("multipart/form-data; boundary=b-1", multipart(("body", b"")), "no part named metadata"),
        (
            "multipart/form-data; boundary=b-1",
            multipart(("metadata", b"{}"), ("body", b"")),
            "the part metadata does not fit",
        ),
        (
            "multipart/form-data; boundary=b-1",
            b"--b-1\r\nContent-Type: x/y\r\n\r\nz\r\n--b-1--\r\n",
            "has no name",
        ),
        ("multipart/form-data; boundary=b-1", b"--b-1\r\nz\r\n--b-1--\r\n", "has no headers"),
        (
            "multipart/form-data; boundary=b-1",
            multipart(("metadata", request()), ("body", b"x"), ("body", b"y")),
            "two parts named body",
        ),
        (
            "multipart/form-data; boundary=b-1",
            typed("metadata", request(), "") + typed("body", b"x", "no type") + b"--b-1--\r\n",
            "does not fit",
        ),
    ],
)
def test_a_wrong_multipart_request_is_refused(kind: str, data: bytes, words: str) -> None:
    assert is_multipart(kind)
    with pytest.raises(CallerError, match=words):
        read_artifact(kind, data)


def test_a_client_changes_nothing_of_an_artifact_but_its_pin() -> None:
    assert msgspec.convert({"pinned": True, "status": "applied"}, PatchArtifact) == PatchArtifact(
        pinned=True
    )
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"status": "applied"}, PatchArtifact)


def test_times_in_a_query_need_a_zone() -> None:
    for text in ("2026-09-02T08:00:00Z", "2026-09-02T10:00:00+02:00"):
        query = msgspec.convert({"created_after": text}, ArtifactQuery, strict=False)
        assert str(query.created_after).startswith("2026-09-02 ")
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"created_after": "2026-09-02T08:00:00"}, ArtifactQuery, strict=False)
