"""A run's progress, folded from its facts: the same code live and after a crash."""

from msgspec import UNSET, Struct

from batten.contract import facts
from batten.contract.cutting import call_in_short
from batten.contract.envelope import milliseconds_since
from batten.contract.facts.assistant import Usage
from batten.contract.facts.tool import Todo


class Progress(Struct):
    """A fold of a run's facts. It outlives the loop: the ending is written from it."""

    turns: int = 0
    cost_micros_usd: int = 0
    cost_unknown: bool = False
    input_tokens: int = 0
    output_tokens: int = 0
    structured_output: object = UNSET
    patch_artifact_ids: list[str] = []
    left_running: list[str] = []
    """Processes that commands left running; they were ended with the commands."""
    started_at: str = ""
    """When a worker first started the run, if another process may have; the envelope's time."""
    turn_started_at: str = ""
    """When the last turn began, if it began in another process; the envelope's time."""
    message: facts.AssistantMessageComplete | None = None
    """The last message of the run, until the next turn begins."""
    answered: bool = False
    """The final answer is recorded."""
    begun: bool = False
    """A turn has been started."""
    refused: str | None = None
    """The reason if a hook refused the prompt."""
    todos: list[Todo] = []
    """The to-do list as last written."""
    running: dict[str, facts.ToolInvoked] = {}
    """Calls whose effect has begun and not ended, by id."""
    denied: list[str] = []
    """Denied calls, each with its command, path or address."""
    call_ids: set[str] = set()
    """Ids of the tool calls of the conversation and of child runs, which share the set."""
    tool_errors: list[str] = []
    """Tools of calls that failed or timed out."""
    last_call: facts.ToolEnded | facts.PolicyToolBlocked | None = None
    """How the last call ended, or that it was refused."""

    @property
    def duration_ms(self) -> int:
        """How long the run took until now, the waits for answers included; 0 if none started it."""
        return milliseconds_since(self.started_at) if self.started_at else 0

    def observe(self, fact: facts.Fact) -> None:
        match fact:
            case facts.AssistantMessageComplete():
                self.turns = fact.turn_index
                self.message = fact
                self._count(fact.usage, fact.cost_micros_usd)
            case facts.TurnStarted():
                self.begun = True
                self.message = None
            case facts.UserMessage():
                self.message = None
            case facts.HookCompleted(hook_event="UserPromptSubmit", decision="deny"):
                self.refused = fact.reason
            case facts.ToolTodoWriteUpdated():
                self.todos = list(fact.todos)
            case facts.AssistantFinalAnswer():
                self.answered = True
                if self.structured_output is UNSET:
                    self.structured_output = fact.structured_output
            case facts.ToolInvoked():
                self.running[fact.tool_call_id] = fact
            case facts.PolicyToolBlocked():
                self.last_call = fact
                self.denied.append(call_in_short(fact.tool_name, fact.subject))
            case facts.ToolCompleted() | facts.ToolCancelled():
                self.last_call = fact
                self.running.pop(fact.tool_call_id, None)
            case facts.ToolFailed() | facts.ToolTimedOut():
                self.last_call = fact
                self.running.pop(fact.tool_call_id, None)
                self.tool_errors.append(fact.tool_name)
            case facts.ContextCompacted() if isinstance(fact.usage, Usage):
                self._count(fact.usage, fact.cost_micros_usd)
            case facts.CostCallUnfinished():
                self._count(fact.usage, fact.cost_micros_usd)
                self.cost_unknown = self.cost_unknown or fact.cost_unknown is True
            case facts.AssistantToolCallProposed():
                self.call_ids.add(fact.tool_call_id)
            case facts.ArtifactCreated(kind="patch"):
                self.patch_artifact_ids.append(fact.artifact_id)
            case _:
                pass

    def _count(self, usage: Usage, cost: int | None) -> None:
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.cost_micros_usd += cost or 0
        self.cost_unknown = self.cost_unknown or cost is None
