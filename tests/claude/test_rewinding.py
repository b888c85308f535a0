"""Files go back to a prompt all or none, and a preview of that changes nothing."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.agent.stage import Stage, Statement, call, say
from tests.claude.process import Json, Process, started, user

FIRST, SECOND = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"


def _write(name: str, text: str) -> list[Statement]:
    return [call("write_file", f"c_{name}_{text[:3]}", file_path=name, content=text)]


def _prompted(ours: Process, message_id: str) -> str:
    """The id of this prompt, as it came back, once its turn is over."""
    ours.send({**user(message_id), "uuid": message_id})
    ours.until("result")
    echo: str = next(
        frame["uuid"]
        for frame in ours.frames
        if frame["type"] == "user" and frame["message"]["content"] == message_id
    )
    return echo


async def _position(stage: Stage) -> int:
    journal = stage.journal()
    try:
        return await journal.position()
    finally:
        journal.close()


def _rewound(ours: Process, message_id: str, **more: Any) -> Json:
    ours.request("r", "rewind_files", user_message_id=message_id, **more)
    answer: Json = ours.until("control_response")["response"]
    return answer


@pytest.fixture
def note(stage: Stage) -> Path:
    note = stage.workspace / "note"
    note.write_text("zero\nkept\n")
    return note


FLAGS = ["--permission-mode", "acceptEdits", "--replay-user-messages"]


def test_a_preview_tells_what_a_rewind_would_change_and_changes_nothing(
    stage: Stage, note: Path
) -> None:
    frames = (
        _write("note", "one\nkept\n"),
        [say("ok")],
        [*_write("note", "two\nkept\n"), *_write("made", "new\n")],
        [say("ok")],
    )
    with started(stage, *frames, flags=FLAGS) as ours:
        first, second = _prompted(ours, FIRST), _prompted(ours, SECOND)
        known = asyncio.run(_position(stage))
        to_second, to_first = (
            {
                "subtype": "success",
                "request_id": "r",
                "response": {
                    "canRewind": True,
                    "filesChanged": ["made", "note"],
                    "insertions": 1,
                    "deletions": 2,
                },
            }
            for _ in range(2)
        )
        assert _rewound(ours, second, dry_run=True) == to_second
        assert _rewound(ours, first, dry_run=True) == to_first
        assert note.read_text() == "two\nkept\n"
        assert (stage.workspace / "made").read_text() == "new\n"
        assert asyncio.run(_position(stage)) == known
        assert _rewound(ours, first) == to_first
        assert note.read_text() == "zero\nkept\n"
        assert not (stage.workspace / "made").exists()
        nothing: dict[str, object] = {
            "canRewind": True,
            "filesChanged": [],
            "insertions": 0,
            "deletions": 0,
        }
        assert _rewound(ours, first, dry_run=True)["response"] == nothing
        assert ours.end() == 0


def test_a_preview_says_why_a_rewind_is_refused(stage: Stage, note: Path) -> None:
    with started(stage, _write("note", "one\n"), [say("ok")], flags=FLAGS) as ours:
        first = _prompted(ours, FIRST)
        note.write_text("a person's\n")
        preview = _rewound(ours, first, dry_run=True)["response"]
        assert preview["canRewind"] is False
        assert "note" in preview["error"]
        refused = _rewound(ours, first)
        assert refused["subtype"] == "error"
        assert "note" in refused["error"]
        unknown = _rewound(ours, SECOND, dry_run=True)["response"]
        assert unknown["canRewind"] is False
        assert SECOND in unknown["error"]
        wrong = _rewound(ours, first, dry_run="yes")
        assert wrong["subtype"] == "error"
        assert "dry_run" in wrong["error"]
        assert ours.end() == 0
    assert note.read_text() == "a person's\n"


def test_a_rewind_over_several_turns_changes_nothing_if_an_early_file_differs(
    stage: Stage, note: Path
) -> None:
    frames = (_write("note", "one\n"), [say("ok")], _write("late", "two\n"), [say("ok")])
    with started(stage, *frames, flags=FLAGS) as ours:
        first, _ = _prompted(ours, FIRST), _prompted(ours, SECOND)
        note.write_text("a person's\n")
        assert "note" in _rewound(ours, first)["error"]
        assert ours.end() == 0
    assert (stage.workspace / "late").read_text() == "two\n"
