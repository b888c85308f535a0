"""What the model is told before the prompt: the project's instructions, memory, and our words."""

import os
from pathlib import Path

import pytest

from batten.agent.instructions import memories, project_instructions, system_prompt
from tests.models.server import ModelServer, answer
from tests.models.wire import anthropic_turn

from .stage import Stage, call, say


def instructions(workspace: Path) -> list[str]:
    return list(project_instructions(str(workspace)))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    (tmp_path / "repository" / "package" / "inner").mkdir(parents=True)
    return tmp_path / "repository"


def test_instructions_are_read_from_the_root_of_the_repository_downwards(
    repository: Path,
) -> None:
    (repository.parent / "AGENTS.md").write_text("outside")
    (repository / "AGENTS.md").write_text("root")
    (repository / "package" / "CLAUDE.md").write_text("package")
    (repository / "package" / "inner" / "AGENTS.md").write_text("inner")
    read = instructions(repository / "package" / "inner")
    assert [text.rpartition("\n")[2] for text in read] == ["root", "package", "inner"]
    assert read[1].startswith(f"Instructions from CLAUDE.md in {repository}/package:")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("given_away", ["AGENTS.md", "."])
def test_above_the_workspace_instructions_of_another_user_are_not_read(
    repository: Path, given_away: str
) -> None:
    (repository / "AGENTS.md").write_text("theirs")
    (repository / "package" / "AGENTS.md").write_text("ours")
    os.chown(repository / given_away, 1234, 1234)
    (text,) = instructions(repository / "package")
    assert text.endswith("ours")
    assert len(instructions(repository)) == 1


def test_of_both_names_the_first_is_read(repository: Path) -> None:
    (repository / "AGENTS.md").write_text("ours")
    (repository / "CLAUDE.md").write_text("theirs")
    (text,) = instructions(repository)
    assert text.endswith("ours")


def test_an_empty_file_leaves_the_other_name_to_be_read(repository: Path) -> None:
    (repository / "AGENTS.md").write_text("  \n")
    (repository / "CLAUDE.md").write_text("theirs")
    (text,) = instructions(repository)
    assert text.endswith("theirs")


def test_without_a_repository_only_the_workspace_is_read(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("above")
    inner = tmp_path / "inner"
    inner.mkdir()
    assert instructions(inner) == []
    (inner / "AGENTS.md").write_text("here")
    assert len(instructions(inner)) == 1


def test_a_long_file_is_cut_and_says_so(repository: Path) -> None:
    (repository / "AGENTS.md").write_text("é" * 40_000)
    (text,) = instructions(repository)
    assert len(text.encode()) < 33 * 1024
    assert text.endswith("(cut at 32768 bytes)")


def test_what_is_not_a_file_is_passed_over(repository: Path) -> None:
    os.mkfifo(repository / "AGENTS.md")
    (repository / "CLAUDE.md").mkdir()
    assert instructions(repository) == []


def test_a_link_that_leads_out_of_the_repository_is_not_followed(repository: Path) -> None:
    (repository.parent / "secrets").write_text("not for the model")
    (repository / "AGENTS.md").symlink_to(repository.parent / "secrets")
    assert instructions(repository) == []
    (repository / "CONTRIBUTING.md").write_text("ours")
    (repository / "package" / "AGENTS.md").symlink_to(repository / "CONTRIBUTING.md")
    (text,) = instructions(repository / "package")
    assert text.endswith("ours")


def test_instructions_that_are_not_text_do_no_harm(repository: Path) -> None:
    (repository / "AGENTS.md").write_bytes(b"say \xff\xfe please")
    (text,) = instructions(repository)
    assert text.endswith("say �� please")


def test_memory_is_that_of_all_and_that_of_the_project(tmp_path: Path) -> None:
    assert list(memories(str(tmp_path), "/some/where")) == []


def test_the_parts_of_the_prompt_are_joined_by_blank_lines(tmp_path: Path) -> None:
    prompt = system_prompt(
        workspace=str(tmp_path),
        home=str(tmp_path),
        own="Mine.",
        appended="More.",
        instructions=True,
    )
    assert prompt == f"Mine.\n\nThe working directory is {tmp_path}.\n\nMore."


async def system_of(stage: Stage, *flags: str) -> str:
    """What a real request says before the conversation."""
    async with ModelServer([answer(anthropic_turn("done"))]) as server:
        stage.environ.update(server.environ())
        await stage.run("--model", "anthropic/claude-sonnet-4-5", *flags)
    system = server.requests[0].json()["system"]
    return system if isinstance(system, str) else "".join(part["text"] for part in system)


async def test_what_is_remembered_is_shown_to_the_next_session(stage: Stage) -> None:
    model = stage.scenario(
        [
            call("save_memory", content="Tabs, not spaces.", scope="project"),
            call("save_memory", content="Metric units.", scope="global"),
        ],
        [say("done")],
    )
    await stage.run("--model", model, "--allow", "save_memory")
    shown = await system_of(stage)
    assert "Memory of this project:\n\n## " in shown
    assert "Tabs, not spaces." in shown
    assert "Metric units." in shown


async def test_memory_of_one_project_is_not_shown_in_another(stage: Stage) -> None:
    model = stage.scenario([call("save_memory", content="Tabs, not spaces.")], [say("done")])
    await stage.run("--model", model, "--allow", "save_memory")
    other = Stage(stage.directory / "other")
    other.home = stage.home
    assert "Tabs" not in await system_of(other)


async def test_without_instructions_nothing_of_the_project_is_shown(stage: Stage) -> None:
    (stage.workspace / "AGENTS.md").write_text("Always whisper.")
    assert "Always whisper." in await system_of(stage)
    assert "Always whisper." not in await system_of(stage, "--no-instructions")


async def test_a_system_prompt_of_ones_own_takes_the_place_of_ours(stage: Stage) -> None:
    (stage.workspace / "AGENTS.md").write_text("Always whisper.")
    shown = await system_of(
        stage, "--system", "You are a parrot.", "--append-system-prompt", "Squawk."
    )
    assert shown.startswith("You are a parrot.\n\n")
    assert shown.endswith("\n\nSquawk.")
    assert "Always whisper." in shown
    assert "without a person watching" not in shown
