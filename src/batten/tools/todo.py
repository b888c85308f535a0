"""The run's to-do list: each call replaces it whole; shown beside the run."""

from typing import Any

from batten.contract.facts import ToolTodoWriteUpdated
from batten.contract.facts.tool import Todo, ToolKind
from batten.models.contract import ToolSpec
from batten.tools.contract import Effect, ToolContext, ToolOutput, object_schema


class TodoWrite:
    kind: ToolKind = "todo_write"
    effect: Effect = "none"
    spec = ToolSpec(
        name="todo_write",
        description="Write the whole to-do list of this work, in place of the one before.",
        parameters=object_schema(
            ["todos"],
            todos={
                "type": "array",
                "items": object_schema(
                    ["content", "status"],
                    content={"type": "string"},
                    status={"type": "string", "enum": ["pending", "in_progress", "completed"]},
                ),
            },
        ),
    )

    def subject(self, arguments: dict[str, Any]) -> str:
        return ""

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        todos = [Todo(one["content"], one["status"]) for one in arguments["todos"]]
        context.record(
            ToolTodoWriteUpdated(
                tool_call_id=context.call_id, tool_name=context.tool_name, todos=todos
            )
        )
        done = sum(todo.status == "completed" for todo in todos)
        return ToolOutput(text=f"{done} of {len(todos)} done")
