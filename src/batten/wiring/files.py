"""The settings files of a workspace, as far as a specification uses them."""

from msgspec.structs import replace

from batten.contract.errors import CallerError
from batten.settings.contract import Settings
from batten.settings.reader import read_settings
from batten.wiring.earlier import workspace_of
from batten.wiring.home import absolute, batten_home
from batten.wiring.spec import Part, SessionSpec

PARTS: tuple[Part, ...] = ("hooks", "skills", "mcp", "plugins")


def settings_of_files(spec: SessionSpec, workspace: str, home: str) -> Settings:
    """The settings of all files. A bare session reads only `spec.settings`."""
    without = frozenset(PARTS) if spec.bare else spec.without
    for part, flag, given in (
        ("mcp", "--mcp-config", spec.mcp_servers),
        ("plugins", "--plugin-dir", spec.plugin_dirs),
    ):
        if part in without and given:
            off = "--bare" if spec.bare else f"--no-{part}"
            raise CallerError(f"{off} turns off what {flag} asks for", code="usage")
    found = read_settings(
        workspace=workspace,
        home=home,
        environ=spec.environ,
        flag=_settings(spec),
        sources=() if spec.bare else spec.setting_sources,
        plugin_dirs=[absolute(path, spec.cwd) for path in spec.plugin_dirs],
        without=without,
        trust_workspace=spec.trust_workspace,
    )
    for problem in found.problems:
        spec.warn(problem)
    return found


def providers_of_files(spec: SessionSpec) -> tuple[str, ...]:
    """The providers of other packages that settings files name."""
    workspace, home = workspace_of(spec, None), batten_home(spec.environ, spec.cwd)
    return settings_of_files(replace(spec, warn=str), workspace, home).entry_points.models


def _settings(spec: SessionSpec) -> str | None:
    """The specification's own settings; the name of a file is made absolute."""
    given = spec.settings
    return given if given is None or given.lstrip()[:1] == "{" else absolute(given, spec.cwd)
