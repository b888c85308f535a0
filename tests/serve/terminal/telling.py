"""Facts as lines: what a reader without a terminal would see of them."""

from batten.contract.envelope import Envelope
from batten.contract.facts import (
    AssistantToolCallProposed,
    Fact,
    ToolCompleted,
    ToolFailed,
    ToolInvoked,
    ToolShellExited,
    ToolShellOutputChunk,
)
from batten.serve.terminal.printers import PlainPrinter
from batten.serve.terminal.transcript import Transcript

AT = "2026-01-02T03:04:05.000Z"


def envelope(fact: Fact, number: int = 0) -> Envelope:
    return Envelope(
        event_id="e", run_id="r", sequence=number, occurred_at=AT, type=fact.type, data=fact
    )


def shown(*facts: Fact, transcript: Transcript | None = None) -> list[str]:
    transcript = transcript or Transcript()
    printer = PlainPrinter(color=False, times=False)
    return [
        printer.rows(line).removesuffix("\n")
        for fact in facts
        for line in transcript.lines(envelope(fact))
    ]


def proposed(call_id: str, name: str = "bash", /, **arguments: object) -> Fact:
    return AssistantToolCallProposed(1, call_id, name, arguments)


def invoked(call_id: str, name: str = "bash", kind: str = "shell") -> Fact:
    return ToolInvoked(call_id, name, kind, 1)


def wrote(call_id: str, data: str, stream: str = "stdout") -> Fact:
    return ToolShellOutputChunk(call_id, stream, data, 0, tool_name="bash")  # type: ignore[arg-type]  # both are streams


def exited(call_id: str, code: int = 0, *, truncated: bool = False) -> Fact:
    return ToolShellExited(call_id, code, None, 0, 0, truncated, tool_name="bash")


def completed(call_id: str, summary: str = "ok", kind: str = "shell", output: str = "") -> Fact:
    return ToolCompleted(call_id, "bash", kind, 5, summary, output=output)


def failed(call_id: str, summary: str, kind: str = "shell", output: str = "") -> Fact:
    return ToolFailed(call_id, "bash", kind, 5, summary, output=output)
