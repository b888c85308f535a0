"""Structured output: an answer demanded by a type, and decoded into it."""

import dataclasses
import subprocess
import sys
from typing import Annotated, Any, TypedDict

import msgspec
import pydantic
import pytest
from msgspec import UNSET, Meta, Struct

from batten.client import CallerError, Launch, NoOutput, Worker
from batten.client.output import schema_of
from batten.embedded import in_process
from tests.agent.stage import Stage, bash, end, say
from tests.client.working import working


class Place(Struct):
    file: str
    line: Annotated[int, Meta(ge=1)]


class Verdict(Struct):
    cause: str
    places: list[Place] = []


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Person(pydantic.BaseModel):
    name: str
    age: int

    @pydantic.field_validator("name")
    @classmethod
    def is_named(cls, name: str) -> str:
        if name == "nobody":
            raise ValueError("nobody is no name")
        return name


class Movie(TypedDict):
    title: str


class Tree(Struct):
    name: str
    inner: list["Tree"] = []


def answering(value: object) -> list[dict[str, Any]]:
    return [say(msgspec.json.encode(value).decode()), end()]


VERDICT = {"cause": "a missing file", "places": [{"file": "Makefile", "line": 3}]}
SCHEMA: dict[str, Any] = {"type": "object", "required": ["x"], "properties": {"x": {"const": 1}}}


async def test_the_answer_is_a_value_of_the_type(stage: Stage, launch: Launch) -> None:
    frames = [answering(one) for one in (VERDICT, {"x": 1, "y": 2}, {"name": "Ada", "age": 36})]
    async with working(stage, *frames, launch=launch) as worker:
        verdict = await worker.ask("why?", schema=Verdict)
        point = await worker.ask("where?", schema=Point)
        person = await worker.ask("who?", schema=Person)
    assert verdict.output == Verdict("a missing file", [Place("Makefile", 3)])
    assert (verdict.outcome, verdict.structured_output) == ("completed", VERDICT)
    assert point.output == Point(1, 2)
    assert person.output == Person(name="Ada", age=36)


async def test_typed_dicts_and_json_schemas_give_plain_values(stage: Stage) -> None:
    frames = [answering({"title": "M"}), answering({"x": 1})]
    async with working(stage, *frames, launch=in_process) as worker:
        assert (await worker.ask("go", schema=Movie)).output == {"title": "M"}
        assert (await worker.ask("go", schema=SCHEMA)).output == {"x": 1}


async def test_an_unfit_answer_is_demanded_again(stage: Stage) -> None:
    frames = [[say("I do not know"), end()], answering({"cause": 7}), answering(VERDICT)]
    async with working(stage, *frames, launch=in_process) as worker:
        result = await worker.ask("why?", schema=Verdict)
    assert result.output.cause == "a missing file"


async def test_a_run_without_a_fit_answer_has_no_output(stage: Stage, launch: Launch) -> None:
    frames = [[say("No."), end()]] * 3
    async with working(stage, *frames, launch=launch) as worker:
        result = await worker.ask("why?", schema=Verdict)
    assert (result.outcome, result.structured_output) == ("schema_invalid", UNSET)
    with pytest.raises(NoOutput, match="schema_invalid") as raised:
        assert result.output
    assert raised.value.outcome == "schema_invalid"


async def test_an_answer_that_only_the_type_refuses_says_so(stage: Stage) -> None:
    frame = answering({"name": "nobody", "age": 1})
    async with working(stage, frame, launch=in_process) as worker:
        result = await worker.ask("who?", schema=Person)
    assert result.completed
    with pytest.raises(NoOutput, match="nobody is no name"):
        assert result.output


async def test_the_demand_holds_for_one_prompt(stage: Stage, launch: Launch) -> None:
    frames = [answering(VERDICT), [say("Plain words."), end()], [bash("true")], answering(VERDICT)]
    async with working(stage, *frames, launch=launch, approvals="allow") as worker:
        assert (await worker.ask("why?", schema=Verdict)).completed
        plain = await worker.ask("and now?")
        assert (plain.outcome, plain.text) == ("completed", "Plain words.")
        assert plain.structured_output is UNSET
        async with worker.prompt("again", schema=Verdict) as run:
            async for _ in run:
                pass
        assert run.result.structured_output == VERDICT


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (int, "it must describe an object"),
        (list[int], "it must describe an object"),
        (Worker, "it must be a msgspec Struct, a dataclass"),
        ({"type": "object", "properties": 7}, "schema is not a JSON Schema"),
        ({"type": "object", "$ref": "https://example.org/x"}, "may refer only to itself"),
        (7, "schema is 7"),
    ],
)
async def test_an_unusable_schema_is_refused_before_anything_is_asked(
    stage: Stage, schema: Any, words: str
) -> None:
    async with working(stage, [say("Done."), end()], launch=in_process) as worker:
        with pytest.raises(CallerError, match=words):
            await worker.ask("go", schema=schema)
        assert (await worker.ask("go")).completed


def test_the_root_of_a_schema_is_an_object() -> None:
    schema = schema_of(Verdict)
    assert (schema["type"], schema["required"]) == ("object", ["cause"])
    assert list(schema["$defs"]) == ["Place"]
    recursive = schema_of(Tree)
    assert recursive["type"] == "object"
    assert "Tree" in recursive["$defs"]


def test_pydantic_is_not_imported_for_other_types() -> None:
    code = (
        "import sys, msgspec; from batten.client.output import schema_of\n"
        "class S(msgspec.Struct): x: int\n"
        "assert schema_of(S)['type'] == 'object'; assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
