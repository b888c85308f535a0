"""Writes a scenario file from a live run, so that the run can be replayed.

The file is complete after every message. Thinking is left out: scenarios cannot express it.
"""

from typing import Any, Protocol

from batten.contract.conversation import Message, Text, ToolCall
from batten.contract.envelope import timestamp
from batten.contract.errors import CallerError
from batten.models import scenario as script


class Redacting(Protocol):
    def text(self, text: str) -> str: ...
    def value(self, value: Any) -> tuple[Any, list[str]]: ...


class ScenarioRecorder:
    """Observes the assistant messages of one conversation, in order.

    Everything a model or a tool wrote goes through the redactor before it is stored.
    """

    def __init__(
        self,
        path: str,
        *,
        redactor: Redacting,
        model: str | None = None,
        recorded_at: str | None = None,
    ) -> None:
        import os

        self._path = path
        self._draft = f"{path}.{os.getpid()}.tmp"
        self._redactor = redactor
        self._id = os.path.basename(path).removesuffix(".json").strip() or "scenario"
        self._model = model
        self._recorded_at = recorded_at or timestamp()
        self._tools: dict[str, None] = {}
        self._frames: list[script.Frame] = []

    def check(self) -> None:
        """Raise if the file cannot be written. Leaves an existing file unchanged."""
        import os

        if os.path.isdir(self._path):
            raise self._cannot("it is a directory")
        # Replacing a device or a pipe would destroy it for its other users.
        if os.path.exists(self._path) and not os.path.isfile(self._path):
            raise self._cannot("it is not a regular file")
        try:
            with open(self._draft, "wb"):
                os.unlink(self._draft)
        except (OSError, ValueError) as error:
            raise self._cannot(error) from error

    def observe(self, message: Message | None, stop_reason: str, error: str | None = None) -> None:
        """Add one assistant message and rewrite the file.

        `error` is the error that ended the run after this partial message; retries are not
        messages.
        """
        message = message or Message("assistant", ())
        statements = [*self._statements(message), *self._ending(message, stop_reason, error)]
        self._frames.append(script.Frame(index=len(self._frames), statements=tuple(statements)))
        self._write(script.encode(self.scenario()))

    def scenario(self) -> script.Scenario:
        """The recording so far."""
        return script.Scenario(
            schema_version=script.SCENARIO_SCHEMA,
            id=self._id,
            description="Recorded from a live run.",
            metadata=script.Metadata(
                recorded_from="live",
                recorded_at=self._recorded_at,
                model_original=self._model,
                tools_expected=tuple(self._tools),
            ),
            frames=tuple(self._frames),
        )

    def _statements(self, message: Message) -> list[script.Statement]:
        statements: list[script.Statement] = []
        for block in message.blocks:
            if isinstance(block, Text):
                if block.text:
                    statements.append(script.SayText(text=self._redactor.text(block.text)))
            elif isinstance(block, ToolCall):
                self._tools[self._redactor.text(block.name)] = None
                statements.append(self._call(block))
        return statements

    def _call(self, call: ToolCall) -> script.CallTool:
        # Invalid arguments are kept as text for people; they replay as no arguments.
        arguments = call.input if call.raw is None else call.raw
        return script.CallTool(
            tool=self._redactor.text(call.name),
            input=self._redactor.value(arguments)[0],
            id=self._redactor.text(call.id),
            expected_result="any",
        )

    def _ending(
        self, message: Message, stop_reason: str, error: str | None
    ) -> list[script.Statement]:
        if error is not None:
            return [script.Fail(type="fatal", message=self._redactor.text(error))]
        match stop_reason:
            case "tool_use" if message.tool_calls():
                return []
            case "max_tokens":
                return [script.End(reason="limit_exceeded")]
            case "aborted":
                return [script.End(reason="aborted")]
            case "refusal" | "filtered":
                # A script cannot refuse; replayed as an answer, a refused run would succeed.
                return [script.Fail(type="fatal", message=f"The model stopped: {stop_reason}.")]
            case _:
                return [script.End(reason="complete")]

    def _write(self, body: bytes) -> None:
        import os

        try:
            with open(self._draft, "wb") as file:
                file.write(body)
            os.replace(self._draft, self._path)
        except (OSError, ValueError) as error:
            raise self._cannot(error) from error

    def _cannot(self, reason: object) -> CallerError:
        return CallerError(f"{self._path}: cannot record the scenario: {reason}")
