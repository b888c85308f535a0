"""What the pages show works: each command and program in them is run, page by page."""

import re
import shutil
import subprocess
from argparse import Namespace
from pathlib import Path

import pytest

from batten.cli import COMMANDS
from batten.cli.help import print_help
from tests.docs.pages import PAGES, ROOT, RUNNABLE, SHELLS, Block, blocks, inline_commands, name
from tests.docs.reader import Reader

ELSEWHERE = {ROOT / "docs" / "client.md": "python"}
"""Blocks that tests/client/test_pages.py runs, one by one."""
MOST_NOT_RUN = 5


def shown(page: Path) -> list[Block]:
    return [
        block
        for block in blocks(page)
        if block.kind in RUNNABLE and block.kind != ELSEWHERE.get(page)
    ]


RUN = {page: [block for block in shown(page) if not block.not_run] for page in PAGES}


@pytest.mark.parametrize("page", [page for page in PAGES if RUN[page]], ids=name)
def test_what_a_page_shows_works_from_its_top_to_its_end(page: Path, tmp_path: Path) -> None:
    reader = Reader(tmp_path, in_clone=page.parent == ROOT)
    missing = [
        block for block in RUN[page] if block.kind in SHELLS and not shutil.which(block.kind)
    ]
    for block in RUN[page]:
        if block not in missing:
            reader.run(block)
    if missing:
        pytest.skip(f"not installed: {', '.join(block.kind for block in missing)}; the rest works")


def test_few_blocks_say_that_they_are_not_run() -> None:
    left_out = [
        f"{one.place}: {one.not_run}" for page in PAGES for one in shown(page) if one.not_run
    ]
    assert left_out != []
    assert len(left_out) <= MOST_NOT_RUN, left_out


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_with_a_command_says_what_it_is(page: Path) -> None:
    command = re.compile(r"^(\$ )?(batten|make|python3?|pip|pipx|uv) ", re.MULTILINE)
    unnamed = [
        block.place
        for block in blocks(page)
        if block.kind not in RUNNABLE and command.search(block.text)
    ]
    assert unnamed == [], "write ```sh or ```console"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_in_the_prose_exist_with_their_flags(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in inline_commands(page):
        words = text.split()[1:]
        command = words[0] if words[0] in COMMANDS else ""
        assert command or re.match(r"[-\"'<A-Z]", words[0]), f"no such command: {text}"
        print_help(Namespace(command=command or "flags"))
        known = capsys.readouterr().out
        for flag in re.findall(r"(?<!\S)-{1,2}[a-z][\w-]*", text.partition(" -- ")[0]):
            assert re.search(rf"(?<![\w-]){flag}(?![\w-])", known), f"no such flag: {text}"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name)
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    for target in sorted(set(re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(), re.MULTILINE))):
        asked = subprocess.run(
            ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert asked.returncode == 0, asked.stderr


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_requests_that_a_page_shows_are_sent_as_json(page: Path) -> None:
    commands = [
        command
        for block in blocks(page)
        for command in re.findall(r"\bcurl\b(?:\\\n|[^\n])*", block.text)
    ]
    for command in commands:
        if re.search(r"\s(?:-d|--data\S*)\s", command):
            assert "application/json" in command, command
