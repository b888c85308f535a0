"""The house: imports point up its list of rooms, and its modules keep to the style."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"
ROOMS = (
    "contract",
    "protocols",
    "settings",
    "redact",
    "journal",
    "workspace",
    "models",
    "tools",
    "agent",
    "session",
    "wiring",
    "coordination",
    "control",
    "sinks",
    "fleet",
    "runner",
    "client",
    "conformance",
    "serve",
    "cli",
)
"""A room may import itself and the rooms before it."""

NARROWER = {
    "contract": {"contract"},
    "client": {"client", "contract", "protocols"},
    "conformance": {"conformance", "contract"},
}
"""Rooms that may import less than what stands before them."""

DOORS = {"__main__", "embedded"}
"""Modules beside the rooms that start the last one."""

NAMELESS = {"utils", "util", "common", "helpers", "helper", "misc", "manager", "managers"}
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70

LOOSE_TASKS = {
    "batten.agent.child:AgentTool.run": "outlives the cancel that it is shielded from",
    "batten.agent.execution:Execution.begin": "what it creates needs an ending after a cancel",
    "batten.agent.hooks.pool:Pool.start": "nobody waits for it; closing the session does",
    "batten.workspace.shared_keeper:SharedKeeper.start": "the last user awaits it",
    "batten.workspace.ripgrep:records": "a generator cannot hold a group open across its yields",
}
"""Functions that start a task outside a group, and why they may. Who starts one waits for it."""


class Module(NamedTuple):
    name: str
    path: Path
    tree: ast.Module

    @property
    def room(self) -> str:
        """The room it is in; of a module beside the rooms, its own name."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else ""


def read(path: Path) -> Module:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    name = ".".join(part for part in parts if part != "__init__")
    return Module(name, path, ast.parse(path.read_bytes()))


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    """All of them. A test goes through them itself: as tests of their own they are thousands."""
    return [read(path) for path in sorted((SOURCE / "batten").rglob("*.py"))]


def imported(module: Module) -> Iterator[str]:
    """Every module of ours that this one imports, wherever in the file."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.ImportFrom(level=0, module=str(origin), names=names):
                yield from (f"{origin}.{name.name}" for name in names)
            case ast.ImportFrom(level=level, module=origin, names=names):
                package = module.name.split(".")
                if module.path.name == "__init__.py":
                    level -= 1
                base = ".".join(package[: len(package) - level] + ([origin] if origin else []))
                yield from (f"{base}.{name.name}" for name in names)
            case _:
                pass


def rooms_imported(module: Module) -> set[str]:
    ours = (name.split(".") for name in imported(module))
    return {parts[1] for parts in ours if parts[0] == "batten" and len(parts) > 1 and parts[1]} - {
        "__version__"
    }


def allowed(room: str) -> set[str]:
    if room in DOORS:
        return set(ROOMS)
    if room not in ROOMS:
        return set()
    return NARROWER.get(room, set(ROOMS[: ROOMS.index(room) + 1]))


def functions(tree: ast.AST, within: str = "") -> Iterator[tuple[str, ast.AST, int]]:
    """Each function with its qualified name and its length in lines, decorators apart."""
    for node in ast.iter_child_nodes(tree):
        name = within
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{within}.{node.name}".lstrip(".")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, node, (node.end_lineno or node.lineno) - node.lineno + 1
        yield from functions(node, name)


def loose_tasks(tree: ast.AST, within: str = "") -> Iterator[str]:
    """Where a task is started that no group waits for."""
    for node in ast.iter_child_nodes(tree):
        name = within
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{within}.{node.name}".lstrip(".")
        if isinstance(node, ast.Call) and starts_loose_task(node.func):
            yield name
        yield from loose_tasks(node, name)


def starts_loose_task(called: ast.expr) -> bool:
    match called:
        case ast.Name(id="create_task" | "ensure_future"):
            return True
        case ast.Attribute(attr="ensure_future"):
            return True
        case ast.Attribute(attr="create_task", value=owner):
            text = ast.unparse(owner).lower()
            return text == "asyncio" or "loop" in text
        case _:
            return False


def test_imports_point_up_the_list_of_rooms(modules: list[Module]) -> None:
    down = {module.name: rooms_imported(module) - allowed(module.room) for module in modules}
    assert {name: rooms for name, rooms in down.items() if rooms} == {}


def test_a_module_is_in_a_room_of_the_list(modules: list[Module]) -> None:
    outside = {module.name for module in modules if module.room not in {*ROOMS, *DOORS}}
    assert outside == {"batten"}


def test_a_module_is_named_for_what_it_is(modules: list[Module]) -> None:
    assert [module.name for module in modules if NAMELESS & set(module.name.split("."))] == []


def test_a_module_says_what_it_is(modules: list[Module]) -> None:
    assert [module.name for module in modules if not ast.get_docstring(module.tree)] == []


def test_a_file_can_be_read_in_one_sitting(modules: list[Module]) -> None:
    lines = {one.name: len(one.path.read_text("utf-8").splitlines()) for one in modules}
    assert {name: count for name, count in lines.items() if count > MAX_FILE_LINES} == {}


def test_a_function_fits_a_screen(modules: list[Module]) -> None:
    lines = {
        f"{module.name}:{name}": count
        for module in modules
        for name, _, count in functions(module.tree)
    }
    assert {name: count for name, count in lines.items() if count > MAX_FUNCTION_LINES} == {}


def test_no_process_of_ours_loads_modules_of_its_directory(modules: list[Module]) -> None:
    started = {one.name for one in modules if 'sys.executable, "-m"' in one.path.read_text("utf-8")}
    assert not started, "use -P"


def test_tasks_are_started_in_groups_but_for_those_that_say_why(modules: list[Module]) -> None:
    loose = {f"{module.name}:{name}" for module in modules for name in loose_tasks(module.tree)}
    assert loose == set(LOOSE_TASKS)
    assert all(LOOSE_TASKS.values())


def sample(name: str, code: str) -> Module:
    return Module(name, SOURCE / f"{name.replace('.', '/')}.py", ast.parse(code))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("batten.contract.ids", "import batten.journal"),
        ("batten.contract.ids", "from batten import journal"),
        ("batten.journal.rows", "from batten.agent.loop import run"),
        ("batten.journal.rows", "from ..cli import main"),
        ("batten.models.sse", "def late():\n    from batten.tools import registry"),
        ("batten.client.calls", "from batten.journal.contract import Journal"),
        ("batten.protocols.macp.codec", "if True:\n    import batten.control.renderers as v"),
    ],
)
def test_a_downward_import_is_seen_wherever_it_stands(name: str, code: str) -> None:
    module = sample(name, code)
    assert not rooms_imported(module) <= allowed(module.room)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("batten.cli.main", "from batten.agent import loop"),
        ("batten.journal.rows", "from . import contract\nfrom batten.contract.ids import RunId"),
        ("batten.client.calls", "from batten.protocols import hecate"),
        ("batten.cli.main", "from batten import __version__"),
        ("batten.__main__", "from batten.cli import main"),
    ],
)
def test_an_upward_import_is_fine(name: str, code: str) -> None:
    module = sample(name, code)
    assert rooms_imported(module) <= allowed(module.room)


@pytest.mark.parametrize(
    ("call", "loose"),
    [
        ("asyncio.create_task(f())", True),
        ("create_task(f())", True),
        ("asyncio.ensure_future(f())", True),
        ("asyncio.get_running_loop().create_task(f())", True),
        ("self._loop.create_task(f())", True),
        ("group.create_task(f())", False),
        ("self._tasks.create_task(f())", False),
    ],
)
def test_a_task_outside_a_group_is_seen(call: str, loose: bool) -> None:
    assert bool(list(loose_tasks(ast.parse(f"def start():\n    {call}")))) is loose
