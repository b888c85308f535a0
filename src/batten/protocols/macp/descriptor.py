"""The request for a run: a descriptor that knows nothing of scenarios, read strictly."""

import re
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from batten.contract.depth import DEEPEST, is_too_deep
from batten.contract.errors import CallerError
from batten.contract.leniency import read_leniently

MAX_PARTICIPANTS = 1000
LONGEST_KEY = 255
REDACTED = "[redacted]"
_UUID_SHAPE = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_BASE64URL = re.compile(r"[A-Za-z0-9_-]{22,128}")

Named = Annotated[str, Meta(min_length=1)]
RunMode = Literal["live", "sandbox"]
ActorType = Literal["user", "service", "system"]
_CHOICES: dict[str, tuple[str, ...]] = {
    "mode": get_args(RunMode),
    "execution.requester.actorType": get_args(ActorType),
}


class Runtime(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Where the session runs: `embedded`, `rust` (elsewhere, over gRPC) or `agent`."""

    kind: Named
    version: str | UnsetType = UNSET


class Participant(Struct, forbid_unknown_fields=True, frozen=True):
    id: Named


class Callback(Struct, forbid_unknown_fields=True, frozen=True):
    """Where the initiator takes the request to cancel."""

    url: Named
    bearer: str | UnsetType | None = UNSET


class DescribedSession(
    Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"
):
    session_id: str | UnsetType = UNSET
    mode_name: Named
    mode_version: str
    configuration_version: str
    policy_version: str | UnsetType = UNSET
    ttl_ms: Annotated[int, Meta(gt=0)]
    participants: Annotated[list[Participant], Meta(min_length=1)]
    metadata: dict[str, Any] | UnsetType = UNSET


class Requester(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    actor_id: str | UnsetType = UNSET
    actor_type: ActorType | UnsetType = UNSET


class Execution(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    idempotency_key: Annotated[str, Meta(max_length=LONGEST_KEY)] | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    requester: Requester | UnsetType = UNSET


class RunDescriptor(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`POST /runs`. A field that is not listed here is refused."""

    mode: RunMode
    runtime: Runtime
    session: DescribedSession
    execution: Execution | UnsetType = UNSET

    @property
    def tags(self) -> list[str]:
        """The given tags; a sandbox run has that tag too."""
        given: list[str] = []
        if self.execution is not UNSET and self.execution.tags is not UNSET:
            given = self.execution.tags
        if self.mode == "sandbox" and "sandbox" not in given:
            return [*given, "sandbox"]
        return list(given)

    @property
    def idempotency_key(self) -> str | None:
        key = UNSET if self.execution is UNSET else self.execution.idempotency_key
        return key or None

    @property
    def metadata(self) -> dict[str, Any]:
        return {} if self.session.metadata is UNSET else self.session.metadata


class Created(Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer to `POST /runs`."""

    run_id: str
    session_id: str
    status: str
    trace_id: str


_decoder = msgspec.json.Decoder(RunDescriptor)


class ValidatedRuntime(Struct, frozen=True, kw_only=True, rename="camel"):
    reachable: bool
    supported_modes: tuple[str, ...] = ()
    capabilities: dict[str, Any] | UnsetType = UNSET
    """Groups of what the runtime can do; absent if it was not reached."""


class Validated(Struct, frozen=True, kw_only=True):
    """The answer to `POST /runs/validate`."""

    valid: bool
    errors: list[str]
    warnings: list[str]
    runtime: ValidatedRuntime


class CloneRun(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What a clone changes of its descriptor."""

    tags: list[str] | UnsetType = UNSET
    """In place of the tags of the run."""
    context: dict[str, Any] | UnsetType = UNSET
    """In place of `session.metadata.context`."""


def read_descriptor(body: bytes) -> RunDescriptor:
    """Raises `CallerError` with the code `VALIDATION_ERROR` or `INVALID_SESSION_ID`."""
    descriptor = decode_descriptor(body)
    check_session_id(descriptor)
    return descriptor


def decode_descriptor(body: bytes) -> RunDescriptor:
    """Like `read_descriptor`, but any text may be the session's id."""
    try:
        descriptor = read_leniently(body, _decoder.decode)
    except msgspec.ValidationError as error:
        raise CallerError(_plain(str(error)), code="VALIDATION_ERROR") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CallerError(f"the body is not JSON: {error}", code="VALIDATION_ERROR") from error
    check_descriptor(descriptor)
    return descriptor


def cloned(stored: dict[str, Any], changes: CloneRun) -> RunDescriptor:
    """The descriptor of a clone: without the key and the session of its original."""
    descriptor = msgspec.convert(stored, RunDescriptor)
    given = Execution() if descriptor.execution is UNSET else descriptor.execution
    execution = replace(given, idempotency_key=UNSET)
    if changes.tags is not UNSET:
        execution = replace(execution, tags=changes.tags)
    session = replace(descriptor.session, session_id=UNSET)
    if changes.context is not UNSET:
        metadata = {**descriptor.metadata, "context": changes.context}
        session = replace(session, metadata=metadata)
    clone = replace(descriptor, session=session, execution=execution)
    check_descriptor(clone)
    return clone


def check_session_id(descriptor: RunDescriptor) -> None:
    """Raises `CallerError` if the given id of the session is none."""
    given = descriptor.session.session_id
    if given is not UNSET and not is_session_id(given):
        raise CallerError(
            "session.sessionId must be a UUID v4/v7 or base64url 22+ chars",
            code="INVALID_SESSION_ID",
        )


def check_descriptor(descriptor: RunDescriptor) -> None:
    """The rules that types do not tell. Raises like `read_descriptor`."""
    session = descriptor.session
    if len(session.participants) > MAX_PARTICIPANTS:
        raise CallerError(
            f"Maximum {MAX_PARTICIPANTS} participants per session", code="VALIDATION_ERROR"
        )
    metadata = descriptor.metadata
    if is_too_deep(metadata):
        raise CallerError(
            f"session.metadata nests more than {DEEPEST} levels", code="VALIDATION_ERROR"
        )
    if metadata.get("cancelCallback") is not None:
        try:
            callback = msgspec.convert(metadata["cancelCallback"], Callback)
        except msgspec.ValidationError as error:
            text = _plain(str(error), "session.metadata.cancelCallback")
            raise CallerError(text, code="VALIDATION_ERROR") from error
        bearer = callback.bearer
        if isinstance(bearer, str) and not _VISIBLE.fullmatch(bearer):
            raise CallerError(
                "session.metadata.cancelCallback.bearer must be visible ASCII characters",
                code="VALIDATION_ERROR",
            )
    if not isinstance(metadata.get("cancellationDelegated"), bool | None):
        raise CallerError(
            "session.metadata.cancellationDelegated must be true or false", code="VALIDATION_ERROR"
        )


def concealed(descriptor: dict[str, Any]) -> dict[str, Any]:
    """A descriptor as it may be shown: without the callback's secret. The same object if it has
    none.
    """
    metadata: dict[str, Any] = descriptor["session"].get("metadata", {})
    callback: dict[str, Any] = metadata.get("cancelCallback") or {}
    if callback.get("bearer") is None:
        return descriptor
    shown = {**metadata, "cancelCallback": {**callback, "bearer": REDACTED}}
    return {**descriptor, "session": {**descriptor["session"], "metadata": shown}}


def abridged(descriptor: dict[str, Any], most: int) -> dict[str, Any]:
    """A descriptor that takes so many bytes: of the largest members of its metadata only the size
    is told. The same object if it is not larger. Raises `CallerError` if the rest is.
    """
    excess = len(msgspec.json.encode(descriptor)) - most
    if excess <= 0:
        return descriptor
    metadata: dict[str, Any] = dict(descriptor["session"].get("metadata", {}))
    sizes = {name: len(msgspec.json.encode(value)) for name, value in metadata.items()}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        told = f"[left out: {sizes[name]} bytes]"
        if excess <= 0 or sizes[name] <= len(told) + 2:
            break
        metadata[name] = told
        excess -= sizes[name] - len(told) - 2
    if excess > 0:
        raise CallerError(
            f"the descriptor without its metadata takes {excess} bytes more than the {most} that"
            " are kept",
            code="VALIDATION_ERROR",
        )
    return {**descriptor, "session": {**descriptor["session"], "metadata": metadata}}


def is_uuid(text: str) -> bool:
    """Whether it is a lower-case UUID v4 or v7."""
    return _UUID.fullmatch(text) is not None


def is_session_id(text: str) -> bool:
    """Whether it is a lower-case UUID v4 or v7, or 22 to 128 base64url characters.

    What has the shape of a UUID is judged as one: a session with another could never open.
    """
    pattern = _UUID if _UUID_SHAPE.fullmatch(text) else _BASE64URL
    return pattern.fullmatch(text) is not None


def _plain(error: str, within: str = "") -> str:
    """An error of the decoder with the field's path first: `session.ttlMs: Expected …`."""
    text, _, path = error.partition(" - at `")
    path = path.rstrip("`").removeprefix("$").removeprefix(".")
    where = ".".join(part for part in (within, path) if part)
    if where in _CHOICES and text.startswith("Invalid enum value"):
        text += f"; use one of {', '.join(_CHOICES[where])}"
    return f"{where}: {text}" if where else text
