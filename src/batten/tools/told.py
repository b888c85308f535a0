"""The text of a result for the model: whole, or head and tail with a reference to the rest."""

from collections.abc import Callable

from batten.journal.recorder import Recorder
from batten.tools.contract import ToolOutput

MOST_CHARACTERS = 50_000
_HEAD = 30_000


def head_and_tail(text: str, limit: int = MOST_CHARACTERS) -> str:
    """The text, or its head and tail with the number of omitted characters between them."""
    if len(text) <= limit:
        return text
    head = min(_HEAD, limit * 3 // 5)
    tail = limit - head
    return f"{text[:head]}\n… {len(text) - limit} characters left out …\n{text[-tail:]}"


def told(
    recorder: Recorder, call_id: str, output: ToolOutput, redact: Callable[[str], str]
) -> tuple[str, str | None]:
    """The text for the model, and the artifact that holds the whole text, if it was cut."""
    if len(output.text) <= MOST_CHARACTERS:
        return output.text, output.artifact_id
    # Redacted before it is cut: half a secret would not be found.
    clean = redact(output.text)
    artifact_id = output.artifact_id or recorder.artifact(
        "tool_result_blob",
        clean.encode(),
        mime_type="text/plain; charset=utf-8",
        summary="the whole result",
        tool_call_id=call_id,
    )
    return f"{head_and_tail(clean)}\n[whole result: artifact {artifact_id}]", artifact_id
