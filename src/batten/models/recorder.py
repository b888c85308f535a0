"""Writes a scenario file from a live run, so that the run can be replayed and compared.

The file is complete after every message; the end of a run adds what was seen: how calls ended, and
assertions on the outcome, exit codes and files. What stopped a run from outside, such as a limit or
an interrupt, is not in the script: a replay of that run completes after its last message. Thinking
is left out: scenarios cannot express it.
"""

import os
from collections.abc import Callable
from typing import Any, Protocol

from msgspec.structs import replace

from batten.contract.conversation import Message, Text, ToolCall
from batten.contract.envelope import timestamp
from batten.contract.errors import CallerError
from batten.contract.facts import TERMINAL, Fact
from batten.contract.outcomes import Outcome
from batten.models import scenario as script
from batten.models.recorded_results import RecordedResults


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
        workspace: str,
        warn: Callable[[str], object],
        model: str | None = None,
        recorded_at: str | None = None,
    ) -> None:
        self._path = path
        self._draft = f"{path}.{os.getpid()}.tmp"
        self._redactor = redactor
        self._id = os.path.basename(path).removesuffix(".json").strip() or "scenario"
        self._model = model
        self._recorded_at = recorded_at or timestamp()
        self._tools: dict[str, None] = {}
        self._frames: list[script.Frame] = []
        self._earlier = 0
        """Frames of the runs before this one."""
        self._warn = warn
        try:
            self._results = RecordedResults(workspace, path)
        except ValueError as error:  # a name with a NUL
            raise self._cannot(error) from error

    def check(self) -> None:
        """Raise if the file cannot be written. Leaves an existing file unchanged."""
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

    def take(self, fact: Fact) -> None:
        """Take a fact of the run; its last one completes a file with messages."""
        self._results.take(fact)
        if fact.type not in TERMINAL:
            return
        self._end_run()
        if not self._frames:
            return
        try:
            self._write(script.encode(self.scenario()))
        except CallerError as error:  # the run has ended as it did
            self._warn(str(error))

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
            frames=tuple(map(self._with_results, self._frames)),
            assertions=tuple(map(self._clean, self._results.assertions(self._outcome()))),
            prompts=tuple(map(self._redactor.text, self._results.prompts)),
        )

    def _end_run(self) -> None:
        """Give a run as many messages as its prompt has in a replay."""
        outcome = self._results.outcome
        if len(self._frames) == self._earlier:
            del self._results.prompts[-1:]  # it would be given the answer to the next one
        elif outcome != "loop" and not isinstance(self._last(), script.Fail | script.End):
            frame = self._frames[-1]
            for statement in frame.statements:
                if isinstance(statement, script.CallTool) and statement.id is not None:
                    self._results.stop(statement.id)
            end = script.End(reason="complete")
            self._frames[-1] = replace(frame, statements=(*frame.statements, end))
        self._earlier = len(self._frames)

    def _outcome(self) -> Outcome:
        """How a replay of the last run ends."""
        if self._results.outcome == "loop":
            return "loop"
        match self._last():
            case script.Fail() | script.End(reason="limit_exceeded" | "aborted"):
                return "model_error"
            case _:
                return "completed"

    def _last(self) -> script.Statement | None:
        return self._frames[-1].statements[-1] if self._frames else None

    def _with_results(self, frame: script.Frame) -> script.Frame:
        return replace(frame, statements=tuple(map(self._with_result, frame.statements)))

    def _with_result(self, statement: script.Statement) -> script.Statement:
        if not isinstance(statement, script.CallTool) or statement.id is None:
            return statement
        seen = self._results.result(statement.id)
        if seen is None:
            return statement
        expected: script.ExpectedResult = "success" if seen.ending == "completed" else "error"
        return replace(statement, expected_result=expected, result=seen)

    def _clean(self, assertion: script.Assertion) -> script.Assertion:
        """A file with a secret in it is not compared."""
        text = assertion.equals
        if text is None or self._redactor.text(text) == text:
            return assertion
        return replace(assertion, kind="file_exists", equals=None)

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
        if call.name == "multi_edit":
            self._results.name_files(arguments)
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
        try:
            with open(self._draft, "wb") as file:
                file.write(body)
            os.replace(self._draft, self._path)
        except (OSError, ValueError) as error:
            raise self._cannot(error) from error

    def _cannot(self, reason: object) -> CallerError:
        return CallerError(f"{self._path}: cannot record the scenario: {reason}")
