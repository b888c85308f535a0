"""`schemas/batten.d.ts` is made from the schemas, and the compiler takes it."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec

from tests.contract.typescript import FILE, ROOT, compile_beside_types

KNOWN = {"Array", "Record", "EventData", "Type", "KnownEvent"}


def test_the_committed_file_is_the_generated_one() -> None:
    command = [sys.executable, "-m", "scripts.generate_typescript", "--check"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (checked.stdout, checked.stderr, checked.returncode) == ("", "", 0)


def test_every_field_of_every_event_is_there_and_optional_as_in_the_schemas() -> None:
    text = FILE.read_text()
    for path in sorted((ROOT / "schemas" / "events" / "v1").glob("*.schema.json")):
        schema = msgspec.json.decode(path.read_bytes())
        type_ = path.name.removesuffix(".schema.json")
        if type_ == "envelope" or not schema.get("properties"):
            continue
        name = "".join(part.capitalize() for part in re.split(r"[._]", type_)) + "Data"
        body = text.partition(f"export interface {name} {{\n")[2].partition("\n}\n")[0]
        fields = dict(re.findall(r"^  (\w+)(\??): ", body, re.MULTILINE))
        required = set(schema["required"])
        assert fields == {
            field: "" if field in required else "?" for field in schema["properties"]
        }, type_


def test_each_name_is_declared_once_and_every_used_one_is_there() -> None:
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", FILE.read_text(), flags=re.DOTALL)
    declared = re.findall(r"^export (?:interface|type) (\w+)", text, re.MULTILINE)
    used = re.findall(r"\b[A-Z]\w*", re.sub(r'"[^"]*"', "", text))

    assert len(declared) == len(set(declared))
    assert set(used) - KNOWN <= set(declared)
    assert {"Task", "Run", "RunState", "KnownEvent", "RunFinishedData"} <= set(declared)


USE = """
import type {KnownEvent, CreateTask, RunReply} from "./batten";
const task: CreateTask = {prompt: "go"};
export function codeOf(event: KnownEvent, reply: RunReply): number | string {
  switch (event.type) {
    case "tool.shell.exited": return event.data.exit_code;
    case "run.failed": return event.data.code;
    default: return reply.data.id + task.prompt;
  }
}
// @ts-expect-error: a number is no prompt
export const wrong: CreateTask = {prompt: 1};
export function mistaken(event: KnownEvent): unknown {
  // @ts-expect-error: there is no such type
  if (event.type === "run.nope") return 1;
  // @ts-expect-error: only the events of a command have it
  if (event.type === "run.failed") return event.data.exit_code;
  return 0;
}
"""


def test_the_compiler_takes_right_programs_and_finds_mistakes(tmp_path: Path) -> None:
    """An expected mistake that the compiler does not find is an error, too."""
    assert compile_beside_types(tmp_path, USE) == ""


def test_the_program_of_the_page_compiles(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "http.md").read_text()
    program = page.partition("```ts\n")[2].partition("```")[0]

    assert "EventSource" in program
    assert compile_beside_types(tmp_path, program) == ""
