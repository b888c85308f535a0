"""The messages shown to the model: a fold of a session's facts.

The live loop and a resumed session build them from the same facts with the same code, so they
cannot disagree. Content that redaction or size kept out of a fact is passed in with it:
`needed_content` names it.
"""

import msgspec
from msgspec import UNSET, Struct

from batten.contract import facts
from batten.contract.conversation import (
    Block,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from batten.contract.errors import NotFound
from batten.contract.facts.assistant import MessageBlock
from batten.journal.recorder import Content

NEVER_RUN = "Error: this call was not run: the run ended before it."
OUTCOME_UNKNOWN = (
    "Error: outcome unknown: the process that ran this call is gone. "
    "It may or may not have taken effect; check before doing it again."
)
MESSAGE_TOO_LONG = "message_too_long"
"""The code of a run whose prompt alone does not fit the model."""
SUMMARY_MARK = "[Context Summary] "

_PICTURE_SIZE = 6000


class NeededContent(Struct, frozen=True):
    """Artifacts whose bytes a fact refers to."""

    plain: tuple[str, ...] = ()
    sealed: tuple[str, ...] = ()


_NOTHING = NeededContent()


def needed_content(fact: facts.Fact) -> NeededContent:
    """The artifacts whose bytes `Conversation.observe` takes with this fact; often none."""
    match fact:
        case (
            facts.UserMessage(sealed_artifact_id=str(sealed))
            | facts.AssistantToolCallProposed(sealed_artifact_id=str(sealed))
            | facts.AssistantTextComplete(sealed_artifact_id=str(sealed))
        ):
            return NeededContent(sealed=(sealed,))
        case facts.UserMessage() | facts.AssistantTextComplete() if fact.artifact_id is not UNSET:
            return NeededContent(plain=(str(fact.artifact_id),))
        case facts.UserAttachment(kind="image"):
            return NeededContent(plain=(fact.artifact_id,))
        case facts.AssistantMessageComplete():
            thoughts = [one.sealed_artifact_id for one in fact.blocks if one.kind == "thinking"]
            return NeededContent(sealed=tuple(str(one) for one in thoughts if one is not UNSET))
        case facts.ToolEnded():
            images = fact.image_artifact_ids
            return _NOTHING if images is UNSET else NeededContent(plain=tuple(images))
        case _:
            return _NOTHING


class _Kept(Struct):
    """The whole state of a conversation, kept when the journal prunes the facts it came from."""

    messages: list[Message]
    texts: dict[int, str]
    proposed: dict[str, ToolCall]
    results: dict[str, ToolResult]
    contexts: dict[str, list[str]] = {}
    prompted: bool = False


class Conversation:
    """Messages in order. `observe` takes every fact of the session's runs, in order."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._sizes: list[int] = []
        self._texts: dict[int, str] = {}
        self._proposed: dict[str, ToolCall] = {}
        self._results: dict[str, ToolResult] = {}
        self._contexts: dict[str, list[str]] = {}
        """Text that hooks add to the results of the last message's calls, by call id."""
        self._begun: set[str] = set()
        """Calls of the last message whose effect has begun."""
        self.open_message: facts.AssistantMessageComplete | None = None
        """The last message, while its turn is not completed."""
        self.has_images = False
        """Whether a message may show an image."""
        self._prompted = False
        """The last message is a prompt that the model has not answered."""

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(self._messages)

    @property
    def tokens(self) -> int:
        """An estimate: a quarter of the serialized length."""
        return -(-sum(self._sizes) // 4)

    @property
    def prompt_tokens(self) -> int:
        """An estimate for the prompt that the model has not answered; 0 if there is none."""
        return -(-self._sizes[-1] // 4) if self._prompted and self._sizes else 0

    def token_sizes(self) -> list[int]:
        return [-(-size // 4) for size in self._sizes]

    def pending_calls(self) -> list[ToolCall]:
        """Calls of the last assistant message that have no result yet."""
        if not self._messages or self._messages[-1].role != "assistant":
            return []
        calls = self._messages[-1].tool_calls()
        return [call for call in calls if call.id not in self._results]

    def last_text(self) -> str:
        """The newest assistant message that says something; empty if there is none."""
        for message in reversed(self._messages):
            if message.role == "assistant" and message.text().strip():
                return message.text()
        return ""

    def said(self) -> str:
        """The text of the last assistant message; may be empty."""
        for message in reversed(self._messages):
            if message.role == "assistant":
                return message.text()
        return ""

    def observe(self, fact: facts.Fact, content: Content | None = None) -> None:
        """Apply one fact; `content` holds the bytes that `needed_content` names."""
        match fact:
            case facts.UserMessage():
                self.open_message = None
                self._close_turn()
                self._append(Message("user", (Text(_whole_text(fact, content)),)))
                self._prompted = fact.turn_index == 0
            case facts.UserAttachment(kind="image"):
                self.has_images = True
                self._attach(Image(fact.mime, _take(content, fact.artifact_id)))
            case facts.TurnStarted():
                self._close_turn()
            case facts.AssistantTextComplete():
                self._texts[fact.block_index] = _whole_text(fact, content)
            case facts.AssistantToolCallProposed():
                self._proposed[fact.tool_call_id] = _call(fact, content)
            case facts.AssistantRetracted():
                self._texts.clear()
                self._proposed.clear()
            case facts.AssistantMessageComplete():
                self._complete(fact, content)
            case facts.ToolInvoked():
                self._begun.add(fact.tool_call_id)
            case facts.ToolEnded():
                self._result(fact, content)
            case facts.PolicyToolBlocked() if fact.output is not UNSET:
                self._results[fact.tool_call_id] = ToolResult(
                    fact.tool_call_id, fact.tool_name, str(fact.output), is_error=True
                )
            case facts.HookCompleted():
                self._heed(fact)
            case facts.ContextPruned():
                self._prune(set(fact.tool_call_ids))
            case facts.ContextCompacted():
                self._compact(fact)
            case facts.TurnCompleted():
                self.open_message = None
            case facts.TurnFailed() | facts.GapRunDisconnected():
                if isinstance(fact, facts.TurnFailed) and fact.code == "context_overflow":
                    self._drop_prompt()  # our estimate was too low
                self._texts.clear()
            case facts.RunFinished() | facts.RunFailed() | facts.RunCancelled():
                if isinstance(fact, facts.RunFailed) and fact.code == MESSAGE_TOO_LONG:
                    self._drop_prompt()
                self._prompted = False
                self._texts.clear()
                self.open_message = None
                self._close_turn()
            case _:
                pass

    def snapshot(self) -> bytes:
        """The conversation so far. It holds secrets: the caller seals it."""
        return msgspec.json.encode(
            _Kept(
                self._messages,
                self._texts,
                self._proposed,
                self._results,
                self._contexts,
                self._prompted,
            )
        )

    def restore(self, snapshot: bytes) -> None:
        """Replace the conversation with a snapshot."""
        kept = msgspec.json.decode(snapshot, type=_Kept)
        self._messages, self._texts = kept.messages, kept.texts
        self._proposed, self._results = kept.proposed, kept.results
        self._contexts = kept.contexts
        self._prompted = kept.prompted
        self.has_images = True
        self._sizes = [_size(message) for message in kept.messages]

    def would_free(self, call_ids: set[str]) -> int:
        """How many tokens pruning these results would free."""
        freed = 0
        for message in self._messages:
            for block in message.blocks:
                if isinstance(block, ToolResult) and block.call_id in call_ids:
                    freed += len(block.output) - len(placeholder(block.output))
                    freed += _PICTURE_SIZE * len(block.images)
        return freed // 4

    def settle(self) -> None:
        """Put the results of the last message's calls into the conversation, in their order."""
        self._close_turn()

    def _block(self, block: MessageBlock, content: Content | None) -> Block | None:
        if block.kind == "text":
            text = self._texts.get(block.block_index, "")
            return Text(text) if text else None
        if block.kind == "tool_call":
            return self._proposed.get(str(block.tool_call_id))
        if block.sealed_artifact_id is UNSET:
            return None
        return msgspec.json.decode(_take(content, block.sealed_artifact_id), type=Thinking)

    def _complete(self, fact: facts.AssistantMessageComplete, content: Content | None) -> None:
        blocks = [one for block in fact.blocks if (one := self._block(block, content)) is not None]
        self._texts.clear()
        self._proposed.clear()
        self._results.clear()
        self._contexts.clear()
        self._begun.clear()
        self.open_message = fact
        self._prompted = False
        self._append(Message("assistant", tuple(blocks)))

    def _result(self, fact: facts.ToolEnded, content: Content | None) -> None:
        images: tuple[Image, ...] = ()
        if fact.image_artifact_ids is not UNSET:
            images = tuple(_picture(_take(content, one)) for one in fact.image_artifact_ids)
            self.has_images = True
        self._results[fact.tool_call_id] = ToolResult(
            fact.tool_call_id, fact.tool_name, fact.text, is_error=fact.is_error, images=images
        )

    def _close_turn(self) -> None:
        if not self._messages or self._messages[-1].role != "assistant":
            return
        calls = self._messages[-1].tool_calls()
        if calls:
            self._append(Message("user", tuple(map(self._result_of, calls))))
        self._results.clear()
        self._contexts.clear()

    def _result_of(self, call: ToolCall) -> ToolResult:
        """The result of a call, under the name the model gave the tool."""
        result = self._results.get(call.id)
        if result is None:
            output = OUTCOME_UNKNOWN if call.id in self._begun else NEVER_RUN
            return ToolResult(call.id, call.name, output, is_error=True)
        output = "\n\n".join([result.output, *self._contexts.get(call.id, ())])
        return ToolResult(call.id, call.name, output, result.is_error, result.images)

    def _heed(self, fact: facts.HookCompleted) -> None:
        """Add the context a hook returned, or remove the prompt it refused."""
        context = fact.additional_context
        if fact.hook_event == "UserPromptSubmit":
            if fact.decision == "deny" and self._messages:
                self._messages.pop()
                self._sizes.pop()
                self._prompted = False
            elif context is not UNSET:
                self._attach(Text(context))
        elif context is not UNSET and fact.tool_call_id is not UNSET:
            self._contexts.setdefault(fact.tool_call_id, []).append(context)

    def _drop_prompt(self) -> None:
        """Remove a prompt that was too long to be answered: every later one would fail with it."""
        if self._prompted and self._messages and self._messages[-1].role == "user":
            self._messages.pop()
            self._sizes.pop()
            self._prompted = False

    def _attach(self, block: Image | Text) -> None:
        if not self._messages:  # the message it belongs to was pruned
            self._append(Message("user", (block,)))
            return
        last = self._messages.pop()
        self._sizes.pop()
        self._append(Message(last.role, (*last.blocks, block)))

    def _append(self, message: Message) -> None:
        self._messages.append(message)
        self._sizes.append(_size(message))

    def _prune(self, call_ids: set[str]) -> None:
        for index, message in enumerate(self._messages):
            blocks = tuple(
                ToolResult(one.call_id, one.name, placeholder(one.output), one.is_error)
                if isinstance(one, ToolResult) and one.call_id in call_ids
                else one
                for one in message.blocks
            )
            if blocks != message.blocks:
                self._messages[index] = Message(message.role, blocks)
                self._sizes[index] = _size(self._messages[index])

    def _compact(self, fact: facts.ContextCompacted) -> None:
        self._close_turn()
        first_kept = max(0, len(self._messages) - fact.kept_messages)
        del self._messages[:first_kept]
        del self._sizes[:first_kept]
        summary = Message("user", (Text(SUMMARY_MARK + fact.summary),))
        self._messages.insert(0, summary)
        self._sizes.insert(0, _size(summary))


def _take(content: Content | None, artifact_id: str) -> bytes:
    if content is None or artifact_id not in content:
        raise NotFound(f"no artifact {artifact_id}")
    return content.pop(artifact_id)


def _whole_text(
    fact: facts.UserMessage | facts.AssistantTextComplete, content: Content | None
) -> str:
    for artifact_id in (fact.sealed_artifact_id, fact.artifact_id):
        if artifact_id is not UNSET:
            return _take(content, artifact_id).decode()
    return fact.text


def _call(fact: facts.AssistantToolCallProposed, content: Content | None) -> ToolCall:
    if fact.sealed_artifact_id is UNSET:
        return ToolCall(fact.tool_call_id, fact.tool_name, fact.input)
    return msgspec.json.decode(_take(content, fact.sealed_artifact_id), type=ToolCall)


def placeholder(output: str) -> str:
    """The text that replaces a pruned tool result."""
    return output if output.startswith("[pruned") else f"[pruned — original: {len(output)} chars]"


def is_prunable(result: ToolResult) -> bool:
    """Whether the placeholder is smaller than the result."""
    return bool(result.images) or len(placeholder(result.output)) < len(result.output)


def _picture(data: bytes) -> Image:
    """A stored picture, its type read from the first bytes."""
    kind = Image("", data).true_mime
    return Image(kind or "image/webp", data)


def _size(message: Message) -> int:
    """Characters as they would be serialized; a picture counts as providers charge it."""
    total = 0
    for block in message.blocks:
        match block:
            case Text():
                total += len(block.text) + 30
            case Thinking():
                total += len(block.text) + len(block.opaque) + 40
            case ToolCall():
                total += len(msgspec.json.encode(block.input)) + len(block.name) + 60
            case Image():
                total += _PICTURE_SIZE
            case ToolResult():
                total += len(block.output) + 60 + _PICTURE_SIZE * len(block.images)
    return total
