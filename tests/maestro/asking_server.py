"""An MCP server with one tool, which asks people for a word."""

from typing import Annotated

from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel


class Word(BaseModel):
    word: str


async def which() -> Elicit[Word]:
    return Elicit("Which word?", Word)


async def ask(word: Annotated[ElicitationResult[Word], Resolve(which)]) -> str:
    return word.data.word if isinstance(word, AcceptedElicitation) else word.action


if __name__ == "__main__":
    server = MCPServer("tiny")
    server.tool()(ask)
    server.run("stdio")
