"""The text of a result for the model: whole, or head and tail with a reference to the rest."""

from collections.abc import Callable

from batten.journal.recorder import Recorder
from batten.tools.contract import ToolOutput

MOST_CHARACTERS = 50_000
_HEAD = 30_000


def _head_and_tail(text: str) -> str:
    """The text, or its head and tail with the number of omitted characters between them."""
    left_out = len(text) - MOST_CHARACTERS
    if left_out <= 0:
        return text
    tail = text[_HEAD - MOST_CHARACTERS :]
    return f"{text[:_HEAD]}\n… {left_out} characters left out …\n{tail}"


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
    return f"{_head_and_tail(clean)}\n[whole result: artifact {artifact_id}]", artifact_id
