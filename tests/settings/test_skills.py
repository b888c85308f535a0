"""Skills: found by name, described by their first lines, and left out when broken."""

from pathlib import Path

import pytest

from batten.settings.contract import Skill
from batten.settings.skills import find_skills, skill_body

from .given import Machine, write, write_skill


def found(folder: Path) -> tuple[list[Skill], list[str]]:
    problems: list[str] = []
    return find_skills(str(folder), "user", problems), problems


def test_skills_are_found_in_the_order_of_their_folders(tmp_path: Path) -> None:
    for name in ("review", "deploy"):
        write_skill(tmp_path, name)
    write(tmp_path / "notes.md", b"no skill")
    (tmp_path / "empty").mkdir()
    skills, problems = found(tmp_path)
    assert problems == []
    assert skills == [
        Skill(
            name=name,
            description=f"When to {name}.",
            path=str(tmp_path / name / "SKILL.md"),
            scope="user",
        )
        for name in ("deploy", "review")
    ]


@pytest.mark.parametrize(
    ("said", "description"),
    [
        ("description: Plain words: and a colon", "Plain words: and a colon"),
        ('description: "In quotes"', "In quotes"),
        ("description: >-\n  folded\n  over lines", "folded over lines"),
        ("description:\n  below", "below"),
        ("# a remark\n\nallowed-tools:\n- Read\n- Bash\ndescription: after a list", "after a list"),
        ("metadata:\n  a: 1\ndescription: after a table", "after a table"),
    ],
)
def test_a_description_is_read(tmp_path: Path, said: str, description: str) -> None:
    write(tmp_path / "x/SKILL.md", f"---\n{said}\n---\nbody".replace("\n", "\r\n"))
    skills, problems = found(tmp_path)
    assert problems == []
    assert [(skill.name, skill.description) for skill in skills] == [("x", description)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"no front", "must begin with a line ---"),
        (b"", "must begin with a line ---"),
        (b"---\ndescription: x\n", "a line --- must end"),
        (b"---\ndescription x\n---\n", "line 2 must be `key: value`"),
        (b"---\ndescription: x\ndescription: y\n---\n", "line 3 says description again"),
        (b"---\nname: x\n---\n", "description must be a text"),
        (b"---\ndescription: " + b"x" * 1025 + b"\n---\n", "of up to 1024 characters"),
        (b"---\nname: a b\ndescription: x\n---\n", "name 'a b' must be"),
        (b"---\ndescription: \xff\n---\n", "is not UTF-8 text"),
        (b"---\ndescription: x\n---\n" + b"x" * 300_000, "more than 262144 bytes"),
    ],
)
def test_a_broken_skill_is_left_out_and_named(tmp_path: Path, text: bytes, why: str) -> None:
    path = write(tmp_path / "broken/SKILL.md", text)
    write_skill(tmp_path, "whole")
    skills, problems = found(tmp_path)
    assert [skill.name for skill in skills] == ["whole"]
    (problem,) = problems
    assert problem.startswith(f"a skill is left out: {path}")
    assert why in problem


def test_the_body_is_what_follows(tmp_path: Path) -> None:
    write_skill(tmp_path, "review", "First.\n\n---\n\nThen.")
    (skill,), _ = found(tmp_path)
    assert skill_body(skill) == "First.\n\n---\n\nThen."


def test_there_are_only_so_many(tmp_path: Path) -> None:
    for number in range(101):
        write_skill(tmp_path, f"s{number:03}")
    skills, problems = found(tmp_path)
    assert len(skills) == 100
    assert problems == [f"{tmp_path} has 101 skills; those after the first 100 are out"]


def test_the_users_skill_wins_over_that_of_a_workspace_and_of_a_plugin(machine: Machine) -> None:
    write_skill(machine.config / "skills", "review")
    write_skill(machine.workspace / ".batten/skills", "review")
    machine.plugin(machine.config / "plugins/audit", skills=["review", "count"])
    settings = machine.read()
    assert [(skill.name, skill.scope) for skill in settings.skills] == [
        ("review", "user"),
        ("count", "plugin"),
    ]
    assert len(settings.problems) == 2


def test_a_skill_that_leads_out_of_the_workspace_is_not_followed(machine: Machine) -> None:
    write_skill(machine.home, "secret")
    folder = machine.workspace / ".batten/skills"
    folder.mkdir(parents=True)
    (folder / "secret").symlink_to(machine.home / "secret")
    settings = machine.read()
    assert settings.skills == ()
    assert "is a link that leads out of the workspace" in settings.problems[0]


def test_skills_are_of_the_sources_that_are_read(machine: Machine) -> None:
    write_skill(machine.config / "skills", "mine")
    write_skill(machine.workspace / ".batten/skills", "ours")
    assert [skill.name for skill in machine.read(sources=("user",)).skills] == ["mine"]
    assert [skill.name for skill in machine.read(sources=("project",)).skills] == ["ours"]
