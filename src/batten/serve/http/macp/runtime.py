"""Rows that ask the runtime: what it is, what it can do, and the policies it keeps."""

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from batten.contract.errors import CallerError
from batten.control.observer.contract import (
    Policy,
    RuntimeClient,
    RuntimeFault,
    Verdict,
)
from batten.protocols.macp.json_values import list_of, number_of, object_of
from batten.serve.http.errors import HttpError
from batten.serve.http.macp.service import RunService
from batten.serve.http.table import Call, Reply, Route

if TYPE_CHECKING:
    from batten.control.observer.contract import Manifest, ModeInfo, Root
    from batten.control.observer.link import RuntimeHealth

T = TypeVar("T")
_BUILT_IN = "policy.default"
_INVALID = "INVALID_POLICY_DEFINITION"
_ERRORS = (
    *("RUNTIME_UNAVAILABLE", "RUNTIME_TIMEOUT", "CIRCUIT_BREAKER_OPEN", "NOT_IMPLEMENTED"),
    *("CONFLICT", "FORBIDDEN", "NOT_FOUND"),
)


class NewPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A policy for the runtime's registry. Its rules are the runtime's to judge."""

    policy_id: str
    mode: str
    description: str = ""
    rules: dict[str, Any]
    schema_version: Annotated[int, Meta(le=2_147_483_647)] = 1


class PolicyParameters(Struct, frozen=True):
    mode: str | UnsetType = UNSET
    """Only policies for this mode."""


@contextmanager
def refusing() -> Generator[None]:
    """The refusal of a runtime becomes the answer, with the gRPC status as metadata."""
    try:
        yield
    except RuntimeFault as fault:
        fields = {"metadata": {"grpcCode": fault.grpc_code}}
        raise HttpError(fault.code, fault.message, fields=fields) from fault


async def asked(service: RunService, name: str, ask: Callable[[RuntimeClient], Awaitable[T]]) -> T:
    """Ask the runtime."""
    with refusing():
        return await service.observer.link.call(name, ask)


async def manifest(call: Call) -> "Manifest":
    return await asked(call.service, "GetManifest", lambda client: client.manifest())


async def modes(call: Call) -> "list[ModeInfo]":
    return await asked(call.service, "ListModes", lambda client: client.modes())


async def roots(call: Call) -> "list[Root]":
    return await asked(call.service, "ListRoots", lambda client: client.roots())


async def health(call: Call) -> "RuntimeHealth":
    service: RunService = call.service
    return await service.observer.link.health()


async def list_policies(call: Call) -> list[Policy]:
    mode = call.query.mode or ""
    return await asked(call.service, "ListPolicies", lambda client: client.policies(mode))


async def get_policy(call: Call) -> Policy:
    policy_id = call.params["policyId"]
    return await asked(call.service, "GetPolicy", lambda client: client.policy(policy_id))


async def register_policy(call: Call) -> Reply:
    service: RunService = call.service
    body: NewPolicy = call.body
    check_policy(body)
    policy = Policy(
        policy_id=body.policy_id,
        mode=body.mode,
        description=body.description,
        rules=body.rules if not service.settings.runtime_address else _spelled(body.rules),
        schema_version=body.schema_version,
    )
    verdict = await _changed(
        call,
        "RegisterPolicy",
        lambda client: client.register_policy(policy),
        action="policy.registered",
        policy_id=body.policy_id,
        mode=body.mode,
    )
    if not verdict.ok and _INVALID in verdict.error:
        raise CallerError(verdict.error, code=_INVALID)
    return Reply(verdict, status=201)


async def unregister_policy(call: Call) -> Verdict:
    policy_id = call.params["policyId"]
    return await _changed(
        call,
        "UnregisterPolicy",
        lambda client: client.unregister_policy(policy_id),
        action="policy.unregistered",
        policy_id=policy_id,
    )


async def _changed(
    call: Call,
    name: str,
    ask: Callable[[RuntimeClient], Awaitable[Verdict]],
    *,
    action: str,
    policy_id: str,
    **details: Any,
) -> Verdict:
    """Ask the runtime for a change of its policies, and record it."""
    service: RunService = call.service
    noted = service.recorder.noted(call, action, "policy", policy_id, **details)
    with refusing(), noted as note:
        verdict = await service.observer.link.call(name, ask)
        note.is_done = verdict.ok
    return verdict


def check_policy(policy: NewPolicy) -> None:
    """What no runtime takes. Raises `CallerError` with the code `INVALID_POLICY_DEFINITION`."""
    fault = _fault(policy)
    if fault:
        raise CallerError(fault, code=_INVALID)


def _fault(policy: NewPolicy) -> str:
    if not policy.policy_id.strip():
        return "policyId must not be blank"
    if policy.policy_id == _BUILT_IN:
        return f"{_BUILT_IN} is built in and cannot be registered"
    if policy.schema_version < 1:
        return f"schemaVersion must be 1 or more, not {policy.schema_version}"
    voting = object_of(policy.rules.get("voting")) or {}
    if voting.get("algorithm") == "weighted" and not object_of(voting.get("weights")):
        return "rules.voting.algorithm weighted needs rules.voting.weights, an object"
    if voting.get("algorithm") == "supermajority":
        threshold = number_of(voting.get("threshold"))
        if threshold is None or threshold <= 0.5:
            return "rules.voting.algorithm supermajority needs a threshold above 0.5"
    commitment = object_of(policy.rules.get("commitment")) or {}
    if commitment.get("authority") == "designated_role":
        roles = commitment.get("designated_roles") or commitment.get("designatedRoles")
        if not list_of(roles):
            return "rules.commitment.authority designated_role needs designated_roles, a list"
    return ""


def _spelled(rules: dict[str, Any]) -> dict[str, Any]:
    """Rules as runtimes elsewhere spell them: they know `critical_severity_vetoes` alone."""
    handling = object_of(rules.get("objection_handling"))
    if handling is None or "block_severity_vetoes" not in handling:
        return rules
    known = {"critical_severity_vetoes": handling["block_severity_vetoes"], **handling}
    return {**rules, "objection_handling": known}


def _get(path: str, handler: Any, summary: str, query: Any = None) -> Route:
    return Route(
        method="GET",
        path=path,
        handler=handler,
        summary=summary,
        tag="runtime",
        query=query,
        errors=_ERRORS,
        timeout_s=120.0,
    )


_ONE = "/runtime/policies/{policyId}"

ROUTES: tuple[Route, ...] = (
    _get("/runtime/manifest", manifest, "The runtime's identity and its modes"),
    _get("/runtime/modes", modes, "Registered modes, with their message types"),
    _get("/runtime/roots", roots, "The runtime's roots"),
    _get("/runtime/health", health, "Whether the runtime answers; 200 also if it does not"),
    Route(
        method="POST",
        path="/runtime/policies",
        handler=register_policy,
        summary="Register a policy with the runtime",
        tag="runtime",
        scope="admin",
        body=NewPolicy,
        status=201,
        errors=(*_ERRORS, _INVALID),
        timeout_s=120.0,
    ),
    _get("/runtime/policies", list_policies, "Registered policies", PolicyParameters),
    _get(_ONE, get_policy, "One registered policy"),
    Route(
        method="DELETE",
        path=_ONE,
        handler=unregister_policy,
        summary="Remove a policy from the runtime's registry",
        tag="runtime",
        scope="admin",
        errors=_ERRORS,
        timeout_s=120.0,
    ),
)
