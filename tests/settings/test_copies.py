"""Private copies of trusted plugins go when they are neither trusted nor used any more."""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from batten.settings.copies import remove_unused
from batten.settings.trust import revoke_trust

from .given import Machine, write

HOOK = {"handlers": [{"type": "command", "command": "${BATTEN_PLUGIN_ROOT}/guard"}]}
USING = """
import sys
from batten.settings.reader import read_settings
workspace, home, config, managed = sys.argv[1:]
environ = {"HOME": home, "XDG_CONFIG_HOME": config, "BATTEN_MANAGED_SETTINGS": managed}
settings = read_settings(workspace=workspace, home=home, environ=environ)
print(settings.hooks[0].handlers[0].command, flush=True)
sys.stdin.read()
"""


@contextmanager
def used(machine: Machine) -> Generator[Path, None, None]:
    """The private copy of the plugin, while another process uses it."""
    words = (machine.workspace, machine.home, machine.config.parent, machine.managed)
    with subprocess.Popen(
        [sys.executable, "-c", USING, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield Path(process.stdout.readline().strip()).parent
        process.communicate(timeout=30)


def plugin(machine: Machine, content: str) -> None:
    folder = machine.plugin(machine.workspace / "audit", hooks={"Stop": [HOOK]})
    write(folder / "guard", content)
    machine.say("project", {"plugins": ["./audit"]})
    machine.trust()


def copies(machine: Machine) -> list[str]:
    return sorted(os.listdir(machine.home / "trusted"))


def test_copy_stays_as_long_as_it_is_trusted_or_used(machine: Machine) -> None:
    plugin(machine, "first")
    with used(machine) as copy:
        assert copy.parent == machine.home / "trusted"
    remove_unused(str(machine.home))
    assert copies(machine) == [copy.name]
    with used(machine) as again:
        assert again == copy
        revoke_trust(str(machine.home), str(machine.workspace))
        remove_unused(str(machine.home))
        assert (copy / "guard").read_text() == "first"
    remove_unused(str(machine.home))
    assert copies(machine) == []


def test_new_content_takes_the_place_of_the_old_copy(machine: Machine) -> None:
    plugin(machine, "first")
    with used(machine) as old:
        plugin(machine, "second")
        with used(machine) as new:
            assert copies(machine) == sorted([old.name, new.name])
    plugin(machine, "third")
    with used(machine) as newest:
        assert copies(machine) == [newest.name]


def test_half_written_copy_of_a_killed_process_is_removed_in_time(machine: Machine) -> None:
    plugin(machine, "first")
    with used(machine) as copy:
        pass
    for name, age_s in (("fresh", 0), ("stale", 7200)):
        half = copy.with_name(f"{copy.name}.1.{name}")
        half.mkdir()
        then = half.stat().st_mtime - age_s
        os.utime(half, (then, then))
    remove_unused(str(machine.home))
    assert copies(machine) == [copy.name, f"{copy.name}.1.fresh"]
