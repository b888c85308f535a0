"""The `skill` tool: what the model is told of skills, and what it gets."""

from pathlib import Path

import pytest

from batten.agent.rules.rule import parse_rule
from batten.agent.rules.verdict import decide
from batten.redact.redactor import Redactor
from batten.settings.contract import Skill
from batten.settings.skills import find_skills
from batten.tools.registry import Toolbox
from batten.tools.skill import SkillTool

from .recording import RecordingContext

TEXT = "---\nname: {name}\ndescription: When to {name}.\n---\n\nFirst look.\nThen {name}.\n"


@pytest.fixture
def skills(tmp_path: Path) -> list[Skill]:
    for name in ("deploy", "review"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text(TEXT.format(name=name))
    return find_skills(str(tmp_path), "user", [])


def test_the_description_names_every_skill(skills: list[Skill]) -> None:
    described = SkillTool(skills).spec.description
    assert described.endswith("- deploy: When to deploy.\n- review: When to review.")


async def test_a_skill_gives_its_text_and_its_folder(skills: list[Skill], tmp_path: Path) -> None:
    output = await SkillTool(skills).run({"name": "review"}, RecordingContext())
    assert not output.is_error
    folder = tmp_path / "review"
    assert output.text == (f"Skill review; its files are in {folder}\n\nFirst look.\nThen review.")


async def test_a_skill_nobody_has_is_named_with_those_there_are(skills: list[Skill]) -> None:
    output = await SkillTool(skills).run({"name": "revue"}, RecordingContext())
    assert (output.ending, output.error_kind) == ("failed", "unknown_skill")
    assert output.text == "Error: no skill is named 'revue'; there are: deploy, review"


async def test_a_skill_that_went_away_is_told(skills: list[Skill], tmp_path: Path) -> None:
    (tmp_path / "review/SKILL.md").unlink()
    output = await SkillTool(skills).run({"name": "review"}, RecordingContext())
    assert (output.ending, output.error_kind) == ("failed", "skill_unreadable")


async def test_a_skill_that_came_to_lead_elsewhere_is_not_read(tmp_path: Path) -> None:
    inside, outside = tmp_path / "work", tmp_path / "outside.md"
    file = inside / "review/SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text(TEXT.format(name="review"))
    found = find_skills(str(inside), "project", [], within=str(inside))
    file.rename(outside)
    file.symlink_to(outside)
    output = await SkillTool(found).run({"name": "review"}, RecordingContext())
    assert (output.ending, output.error_kind) == ("failed", "skill_unreadable")
    assert "First look." not in output.text


async def test_a_secret_in_a_skill_is_not_told(skills: list[Skill], tmp_path: Path) -> None:
    with (tmp_path / "review/SKILL.md").open("a") as file:
        file.write("quite-1-secret-value")
    redactor = Redactor.from_environment({"SERVER_TOKEN": "quite-1-secret-value"})
    output = await SkillTool(skills).run({"name": "review"}, RecordingContext(redactor))
    assert "quite-1-secret-value" not in output.text


@pytest.mark.parametrize("argument", ["name", "skill", "command"])
def test_it_answers_to_its_names_in_other_worlds(skills: list[Skill], argument: str) -> None:
    toolbox = Toolbox([SkillTool(skills)])
    tool = toolbox.find("Skill")
    assert tool is not None
    assert toolbox.arguments(tool, {argument: "review"}) == {"name": "review"}


def test_it_is_allowed_unless_a_rule_names_the_skill(skills: list[Skill]) -> None:
    tool = SkillTool(skills)
    rules = [parse_rule("deny", "Skill(deploy)")]
    verdicts = [
        decide(tool, {"name": name}, rules=rules, mode="plan").verdict
        for name in ("review", "deploy")
    ]
    assert verdicts == ["allow", "deny"]
