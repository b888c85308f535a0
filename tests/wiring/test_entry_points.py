"""Models and tools of other packages: loaded if settings name them, refused in words otherwise."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from tests.agent.stage import Stage, call, end, say
from tests.cli.invoking import Json

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text("utf-8")
BLOCKS = dict(re.findall(r"^```\w+ (\S+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
NAMED = {"entry_points": {"models": ["acme"], "tools": ["words"]}}
PATIENCE_S = 120.0


class Machine:
    """A stage with packages in a folder on the path of its interpreter."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.packages = stage.directory / "packages"
        self.packages.mkdir()

    def install(self, name: str, points: Mapping[str, Mapping[str, str]], **modules: str) -> None:
        """Install a package as pip lays it out."""
        info = self.packages / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        text = ""
        for group, entries in points.items():
            text += f"[{group}]\n" + "".join(f"{key} = {one}\n" for key, one in entries.items())
        (info / "entry_points.txt").write_text(text)
        for module, code in modules.items():
            (self.packages / f"{module}.py").write_text(code)

    def install_example(self) -> None:
        project = tomllib.loads(BLOCKS["pyproject.toml"])["project"]
        self.install(project["name"], project["entry-points"], acme_batten=BLOCKS["acme_batten.py"])

    def run(
        self, *argv: str, settings: object = None, stdin: str = "", traces: bool = False
    ) -> "subprocess.CompletedProcess[str]":
        flags = [] if settings is None else ["--settings", msgspec.json.encode(settings).decode()]
        done = subprocess.run(
            [sys.executable, "-m", "batten", *argv, *flags],
            input=stdin,
            cwd=self.stage.workspace,
            env={**self.stage.environ, "PYTHONPATH": str(self.packages)},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert traces or "Traceback" not in done.stderr
        return done

    def ask(self, model: str, *flags: str, settings: object = None) -> Json:
        done = self.run(
            *("-p", "one two three", "--model", model, "--output-format", "json"),
            *("--sandbox", "none", *flags),
            settings=settings,
        )
        assert done.returncode == 0, done.stderr
        result: Json = msgspec.json.decode(done.stdout)
        return result


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(Stage(tmp_path))


def counting(stage: Stage, text: str = "a b c") -> str:
    return stage.scenario([call("count_words", "c1", text=text)], [say("Done."), end()])


def test_the_example_of_the_page_works(machine: Machine) -> None:
    machine.install_example()
    config = machine.stage.directory / ".config" / "batten"
    config.mkdir(parents=True)
    (config / "settings.toml").write_text(BLOCKS["settings.toml"])
    assert machine.ask("acme/echo")["result"] == "one two three"
    model = counting(machine.stage)
    machine.ask(model, "--allow", "count_words")
    machine.ask(counting(machine.stage, ""), "--allow", "count_words", "--max-budget-usd", "1")
    events = machine.run("events", "last")
    assert "the text has no words" in events.stdout


def test_the_refusal_that_the_page_shows_is_the_one(machine: Machine) -> None:
    machine.install_example()
    (shown,) = re.findall(r"^(batten: the settings name.*)$", PAGE, re.MULTILINE)
    wrong = {"entry_points": {"tools": ["word"]}}
    done = machine.run("-p", "go", "--model", counting(machine.stage), settings=wrong)
    assert (done.returncode, done.stderr.strip()) == (78, shown)


def test_a_package_is_off_until_settings_name_it(machine: Machine) -> None:
    ran = machine.stage.directory / "ran"
    code = f"open({str(ran)!r}, 'w').close()\n{BLOCKS['acme_batten.py']}"
    points = tomllib.loads(BLOCKS["pyproject.toml"])["project"]["entry-points"]
    machine.install("acme-batten", points, acme_batten=code)
    done = machine.run("-p", "go", "--model", "acme/echo")
    assert done.returncode == 78
    assert "no model 'acme/echo'" in done.stderr
    machine.ask(counting(machine.stage), "--permission-mode", "dontAsk")
    assert "Unknown tool: count_words" in machine.run("events", "last").stdout
    done = machine.run("-p", "go", "--model", "acme/echo", "--no-plugins", settings=NAMED)
    assert done.returncode == 78
    assert not ran.exists()


def test_the_workspace_names_none_without_trust(machine: Machine) -> None:
    machine.install_example()
    folder = machine.stage.workspace / ".batten"
    folder.mkdir()
    (folder / "settings.json").write_bytes(msgspec.json.encode(NAMED))
    done = machine.run("-p", "go", "--model", "acme/echo")
    assert done.returncode == 78
    assert "batten.tools: words" in machine.run("trust", "--yes").stdout
    assert machine.ask("acme/echo")["result"] == "one two three"


def test_the_packages_are_listed_only_if_one_is_named(machine: Machine) -> None:
    probe = "import sys, batten.cli as cli; cli.run(sys.argv[1:]); "
    probe += "print('importlib.metadata' in sys.modules)"
    for settings, listed in (("{}", "False"), (msgspec.json.encode(NAMED).decode(), "True")):
        machine.packages = machine.packages.parent / f"packages-{listed}"
        machine.packages.mkdir()
        machine.install_example()
        model = machine.stage.scenario([say("Done."), end()])
        done = subprocess.run(
            [sys.executable, "-c", probe, "-p", "x", "--model", model, "--settings", settings],
            cwd=machine.stage.workspace,
            env={**machine.stage.environ, "PYTHONPATH": str(machine.packages)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.stdout.split()[-1] == listed, done.stderr


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("1/0", "cannot be imported: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
        ("def other(): ...", "cannot be imported: AttributeError"),
        ("make = 7", "is 7; it must be a function"),
        ("def make(): ...", "cannot make its tools: TypeError"),
        ("def make(w, e): return None", "cannot make its tools: TypeError"),
        ("def make(w, e): return [7]", "gives 7, which is no tool: its `spec` is no ToolSpec"),
        ("def make(w, e): return [tool('two words')]", "its name is 'two words'"),
        ("def make(w, e): return [tool('x', {'type': 7})]", "its parameters are no JSON Schema"),
        ("def make(w, e): return [tool('x', kind='odd')]", "its `kind` is 'odd'; use one of"),
        ("def make(w, e): return [tool('x', effect='bad')]", "its `effect` is 'bad'"),
        ("def make(w, e): return [tool('x', run=None)]", "it has no method `run`"),
        ("def make(w, e): return [tool('bash')]", "two tools are named 'bash'"),
        ("def make(w, e): return [tool('x'), tool('x')]", "two tools are named 'x'"),
    ],
)
def test_a_broken_package_is_refused_in_one_line(machine: Machine, code: str, words: str) -> None:
    given = (
        "from types import SimpleNamespace\n"
        "from batten.models.contract import ToolSpec\n"
        "def tool(name, schema={}, kind='custom', effect='none', run=print):\n"
        "    spec = ToolSpec(name, 'About.', schema)\n"
        "    more = {'subject': print, 'run': run}\n"
        "    return SimpleNamespace(spec=spec, kind=kind, effect=effect, **more)\n"
    )
    machine.install("broken", {"batten.tools": {"it": "broken_it:make"}}, broken_it=given + code)
    named = {"entry_points": {"tools": ["it"]}}
    done = machine.run("-p", "go", "--model", counting(machine.stage), settings=named)
    assert (done.returncode, len(done.stderr.splitlines())) == (78, 1), done.stderr
    assert words in done.stderr


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def open_it(name, environ): return 7", "it gives 7, which has no provider"),
        ("def open_it(name, environ): raise KeyError(name)", "KeyError: 'm'"),
    ],
)
def test_a_model_that_cannot_be_opened_is_an_error_of_configuration(
    machine: Machine, code: str, words: str
) -> None:
    machine.install("broken", {"batten.models": {"odd": "odd_model:open_it"}}, odd_model=code)
    named = {"entry_points": {"models": ["odd"]}}
    done = machine.run("-p", "go", "--model", "odd/m", settings=named)
    assert done.returncode == 78, done.stderr
    assert words in done.stderr


def test_a_model_without_its_key_is_an_error_of_the_model(machine: Machine) -> None:
    code = (
        "from batten.contract.errors import NoCredentials\n"
        "def open_it(name, environ): raise NoCredentials('set ACME_KEY')"
    )
    machine.install("acme", {"batten.models": {"odd": "odd_model:open_it"}}, odd_model=code)
    named = {"entry_points": {"models": ["odd"]}}
    done = machine.run("-p", "go", "--model", "odd/m", settings=named)
    assert done.returncode == 1, done.stderr
    assert "set ACME_KEY" in done.stderr


def test_a_provider_of_our_own_is_not_replaced(machine: Machine) -> None:
    machine.install("sly", {"batten.models": {"openai": "sly:open_it"}}, sly="open_it = print")
    named = {"entry_points": {"models": ["openai"]}}
    done = machine.run("-p", "go", "--model", counting(machine.stage), settings=named)
    assert done.returncode == 78
    assert "openai is a provider of our own" in done.stderr


def test_two_packages_with_one_name_are_both_named(machine: Machine) -> None:
    machine.install("first", {"batten.tools": {"it": "one_a:make"}}, one_a="make = print")
    machine.install("second", {"batten.tools": {"it": "one_b:make"}}, one_b="make = print")
    named = {"entry_points": {"tools": ["it"]}}
    done = machine.run("-p", "go", "--model", counting(machine.stage), settings=named)
    assert done.returncode == 78
    assert "several packages: first 1.0, second 1.0" in done.stderr


def test_maestro_serves_a_model_of_another_package(machine: Machine) -> None:
    machine.install_example()
    lines = '{"type":"hello"}\n{"type":"init"}\n{"type":"prompt","content":"hello"}\n'
    flags = ("headless", "--protocol", "maestro", "--model", "acme/echo")
    done = machine.run(*flags, settings=NAMED, stdin=lines)
    frames = [msgspec.json.decode(line) for line in done.stdout.splitlines()]
    (ready,) = (one for one in frames if one["type"] == "ready")
    assert (ready["provider"], ready["model"]) == ("acme", "echo")
    assert any(one.get("content") == "hello" for one in frames)
    done = machine.run(*flags, stdin=lines, traces=True)
    assert '"fatal":true' in done.stdout
    assert '"type":"ready"' not in done.stdout


def test_a_name_in_settings_is_checked(machine: Machine) -> None:
    wrong = {"entry_points": {"tools": ["a b"]}}
    done = machine.run("-p", "go", "--model", "openai/x", settings=wrong)
    assert done.returncode == 78
    assert "entry_points.tools must be names of entry points, not 'a b'" in done.stderr
