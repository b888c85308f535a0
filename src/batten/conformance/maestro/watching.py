"""File watches."""

from batten.conformance.bench import Bench
from batten.conformance.check import check, equal, expect, fields
from batten.conformance.maestro.controller import Controller

_WATCH = "utility_file_watch_start"


async def _watching(bench: Bench) -> Controller:
    controller = await Controller.ready(bench)
    controller.offers("utility_operations", "file_watch")
    await controller.say("utility_file_watch_start", watch_id="w", debounce_ms=0)
    started = await controller.until("utility_file_watch_started", watch_id="w")
    fields(started, root_dir=str, debounce_ms=(int, float))
    return controller


@check("maestro.watch.events", _WATCH)
async def events(bench: Bench) -> None:
    """A watch reports a new file, with its paths and the kind of change."""
    controller = await _watching(bench)
    path = bench.put("new.txt", "x")
    event = await controller.until("utility_file_watch_event", relative_path="new.txt")
    fields(event, change_type=str, path=str, timestamp=(int, float), is_directory=bool)
    expect(event["change_type"] in ("create", "rename", "modify"), event["change_type"])
    equal(event["path"], path, "path")
    equal(event.get("watch_id"), "w", "watch_id")


@check("maestro.watch.stopped", "utility_file_watch_stop")
async def stopped(bench: Bench) -> None:
    """A watch that is stopped says so once; an unknown one is ignored."""
    controller = await _watching(bench)
    for watch_id in ("nobody", "w", "w"):
        await controller.say("utility_file_watch_stop", watch_id=watch_id)
    if not controller.of("utility_file_watch_stopped"):
        await controller.until("utility_file_watch_stopped", watch_id="w")
    heard = await controller.fence()
    equal(len(controller.of("utility_file_watch_stopped")), 1, "how often it stopped")
    wrong = [one for one in [*controller.subject.heard, *heard] if one.get("type") == "error"]
    expect(not wrong, f"{wrong[:1]}")


@check("maestro.watch.refused", _WATCH)
async def refused(bench: Bench) -> None:
    """A second watch of the same id, and one of a missing root, are refused."""
    controller = await _watching(bench)
    for watch_id, root in (("w", None), ("w2", "missing")):
        more = {} if root is None else {"root_dir": root}
        await controller.say("utility_file_watch_start", watch_id=watch_id, **more)
        await controller.refused()
    equal(len(controller.of("utility_file_watch_started")), 1, "the number of watches")


@check("maestro.watch.outside", _WATCH, level="should")
async def outside(bench: Bench) -> None:
    """A watch outside the workspace is refused."""
    controller = await _watching(bench)
    await controller.say("utility_file_watch_start", watch_id="w2", root_dir=bench.directory)
    await controller.refused()
