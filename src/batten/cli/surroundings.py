"""What the surroundings of a run say: the settings files, as far as the flags let them."""

from argparse import Namespace
from collections.abc import Mapping

from batten.cli.arguments import UsageError
from batten.serve.output import say
from batten.settings.contract import Settings
from batten.settings.reader import read_settings

_PARTS = ("hooks", "skills", "mcp", "plugins")


def surroundings(
    options: Namespace, environ: Mapping[str, str], workspace: str, home: str
) -> Settings:
    """Everything the files say; with `--bare`, nothing but what `--settings` does."""
    without = frozenset(part for part in _PARTS if options.bare or getattr(options, f"no_{part}"))
    for part, flag in (("mcp", "mcp_config"), ("plugins", "plugin_dir")):
        if part in without and getattr(options, flag):
            off = "--bare" if options.bare else f"--no-{part}"
            raise UsageError(f"{off} turns off what --{flag.replace('_', '-')} asks for")
    found = read_settings(
        workspace=workspace,
        home=home,
        environ=environ,
        flag=options.settings,
        sources=() if options.bare else _sources(options),
        plugin_dirs=options.plugin_dir,
        without=without,
    )
    for problem in found.problems:
        say(f"batten: {problem}")
    return found


def _sources(options: Namespace) -> tuple[str, ...] | None:
    given = options.setting_sources
    if given is None:
        return None
    return tuple(name.strip() for name in given.split(",") if name.strip())
