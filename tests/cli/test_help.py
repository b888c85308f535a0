"""`batten help`, `batten --help` and `batten version`: all there, by subject, at 80 columns."""

import msgspec
import pytest

from batten import __version__
from batten.cli import COMMANDS
from batten.cli.arguments import headless_parser, parser
from batten.cli.commands import command_parsers
from batten.cli.help import grouped_commands

from .invoking import Shell


def test_the_overview_lists_every_command_once_under_a_heading(shell: Shell) -> None:
    said = shell("help")
    assert said.code == 0
    lines = said.out.decode().splitlines()
    for name, about in COMMANDS.items():
        assert lines.count(f"  {name:<13} {about}") == 1
    for heading in ("Look at runs:", "Steer and undo:", "Keep the store:", "Set up:"):
        assert heading in lines
    assert sorted(one for group in grouped_commands().values() for one in group) == sorted(COMMANDS)
    assert "More" not in grouped_commands()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_is_the_same_in_both_ways(shell: Shell, name: str) -> None:
    said = shell("help", name)
    assert said.code == 0
    assert said.out.decode().startswith(f"usage: batten {name}")
    assert said == shell(name, "--help")


@pytest.mark.parametrize("argv", [["help"], ["--help"], *(["help", name] for name in COMMANDS)])
def test_help_fits_80_columns(shell: Shell, argv: list[str]) -> None:
    lines = shell(*argv).out.decode().splitlines()
    assert [line for line in lines if len(line) > 80] == []


def test_every_flag_has_a_word_of_explanation() -> None:
    for made in (parser(), headless_parser(), *command_parsers().values()):
        silent = [
            one.option_strings for one in made._actions if one.option_strings and not one.help
        ]  # pyright: ignore[reportPrivateUsage]
        assert silent == [], made.prog


def test_the_version_is_told_by_a_command_too(shell: Shell) -> None:
    assert shell("version").out.decode() == f"{__version__} (Batten)\n"
    assert shell("version") == shell("--version")
    told = msgspec.json.decode(shell("version", "--json").out)
    assert told["batten"] == __version__
    assert {"python", "sqlite", "system"} <= told.keys()
