"""Creates a run with its first facts: claimed at once, or queued for a worker."""

import time
from collections.abc import Sequence
from functools import partial

from msgspec import UNSET, Struct

from batten.agent.deps import RunDeps
from batten.agent.settings import RunSettings
from batten.contract import facts
from batten.contract.conversation import File, Image
from batten.contract.envelope import timestamp
from batten.contract.ids import new_run_id
from batten.contract.tracing import current_traceparent
from batten.journal.contract import Lease, NewRun
from batten.journal.keeping import LARGEST_TEXT
from batten.journal.recorder import Recorder


class Parent(Struct, frozen=True):
    """The call that started a child run."""

    run_id: str
    tool_call_id: str
    depth: int
    call_ids: set[str] = set()
    """Ids of its calls, and of those of its children; the child adds its own."""


class Origin(Struct, frozen=True, kw_only=True):
    """Where a new run comes from."""

    session_id: str | None
    task_id: str | None
    prior_run_id: str | None = None
    prior_cost_micros_usd: int = 0
    """The cost of the runs that this one continues."""
    parent: Parent | None = None
    branched: facts.RunResumedFromEvent | None = None
    under: Lease | None = None
    """The lease, of its session or parent, that creating and executing the run needs."""


async def queue_run(
    deps: RunDeps,
    settings: RunSettings,
    origin: Origin,
    prompt: str,
    attachments: Sequence[Image | File] = (),
) -> str:
    """Create a run that waits for a worker to claim it. Returns its id."""
    recorder = await Recorder.create(
        deps.journal,
        new_run(deps, origin, ""),
        queued_facts(deps, settings, origin),
        partial(record_prompt, prompt=prompt, attachments=attachments),
        redactor=deps.redactor,
        seal_key=deps.seal_key,
        under=origin.under,
    )
    return recorder.run_id


def new_run(deps: RunDeps, origin: Origin, worker_id: str) -> NewRun:
    return NewRun(
        run_id=new_run_id(),
        kind="agent_loop",
        worker_id=worker_id,
        lease_s=deps.lease_s,
        task_id=origin.task_id,
        session_id=origin.session_id,
    )


def queued_facts(deps: RunDeps, settings: RunSettings, origin: Origin) -> list[facts.Fact]:
    provider, _, model = settings.models[0].partition("/")
    parent = origin.parent
    queued = facts.RunQueued(
        kind="agent_loop",
        model=model,
        provider=provider,
        workspace_path=deps.workspace_path,
        workspace_mode=deps.workspace_mode,
        prior_run_id=origin.prior_run_id,
        prior_cost_micros_usd=UNSET
        if origin.prior_run_id is None
        else origin.prior_cost_micros_usd,
        parent_run_id=parent.run_id if parent else UNSET,
        parent_tool_call_id=parent.tool_call_id if parent else UNSET,
        executor_type="replay" if provider == "scripted" else "live",
        additional_directories=list(deps.directories) or UNSET,
        identity=deps.identity or UNSET,
        traceparent=(parent and current_traceparent.get()) or UNSET,
    )
    return [queued] if origin.branched is None else [origin.branched, queued]


def record_prompt(recorder: Recorder, prompt: str, attachments: Sequence[Image | File]) -> None:
    """Record the prompt: sealed beside the fact if it holds a secret, an artifact if it is long."""
    sealed = whole = None
    redactor = recorder.redactor.authored
    if redactor.contains(prompt):
        sealed = recorder.seal(prompt.encode(), summary="prompt", remember=True)
    else:
        whole = recorder.keep_long(prompt, "file_snapshot", summary="prompt")
    recorder.record(
        facts.UserMessage(
            turn_index=0,
            # Redacted before it is cut: half a secret would not be found.
            text=redactor.text(prompt)[:LARGEST_TEXT],
            sealed_artifact_id=sealed or UNSET,
            artifact_id=whole or UNSET,
        )
    )
    for attached in attachments:
        recorder.record(_attachment(recorder, attached))


def _attachment(recorder: Recorder, attached: Image | File) -> facts.UserAttachment:
    if isinstance(attached, Image):
        artifact_id = recorder.artifact(
            "image", attached.data, mime_type=attached.mime, summary="attached", remember=True
        )
        return facts.UserAttachment(
            turn_index=0, kind="image", mime=attached.mime, artifact_id=artifact_id
        )
    # Bytes that are not UTF-8 pass unchanged; secrets in the rest are redacted.
    text = attached.data.decode("utf-8", "surrogateescape")
    clean = recorder.redactor.text(text).encode("utf-8", "surrogateescape")
    artifact_id = recorder.artifact(
        "file_snapshot", clean, mime_type=attached.mime, summary="attached"
    )
    return facts.UserAttachment(
        turn_index=0,
        kind="file",
        mime=attached.mime,
        artifact_id=artifact_id,
        name=attached.name,
    )


def started_fact(deps: RunDeps) -> facts.RunStarted:
    until = timestamp(time.time_ns() + int(deps.lease_s * 1e9))
    return facts.RunStarted(worker_id=deps.worker_id, lease_until=until)
