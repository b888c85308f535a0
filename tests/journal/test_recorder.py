"""Facts of any size through a recorder: all are stored, and nothing of them is lost."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract.envelope import MAX_ENVELOPE_BYTES, decode, decode_fact
from batten.contract.facts import (
    ArtifactCreated,
    AssistantFinalAnswer,
    AssistantToolCallProposed,
    Fact,
    TaskCreated,
    ToolCompleted,
    ToolShellCommand,
    ToolTodoWriteUpdated,
    UserMessage,
)
from batten.contract.facts.tool import Todo
from batten.journal.fitting import cut_to_fit, fits
from batten.journal.recorder import Recorder, whole_fact
from batten.journal.sqlite import SqliteJournal
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey

from .given import INVOKED, started

SECRET = "s3kr1t-Value-99"


class Recorded:
    """A recorder on a real run, and what its observer saw."""

    def __init__(self, journal: SqliteJournal, recorder: Recorder, seen: list[Fact]) -> None:
        self.journal = journal
        self.recorder = recorder
        self.seen = seen

    async def stored(self, fact: Fact) -> tuple[Fact, Fact]:
        """The fact as it is stored, and whole again."""
        (stored,) = await self.recorder.record(fact)
        assert len(stored.body) <= MAX_ENVELOPE_BYTES
        kept = decode_fact(stored.body)
        return kept, await whole_fact(kept, self.journal)


@pytest.fixture
async def recorded(tmp_path: Path) -> AsyncIterator[Recorded]:
    journal = SqliteJournal.open(tmp_path)
    seen: list[Fact] = []
    recorder = Recorder(
        journal,
        await started(journal),
        task_id=None,
        redactor=Redactor([SECRET]),
        seal_key=partial(SealKey.load, tmp_path),
        observe=lambda fact, _: seen.append(fact),
    )
    yield Recorded(journal, recorder, seen)
    assert await journal.verify() == []
    journal.close()


LARGE: list[Fact] = [
    UserMessage(turn_index=0, text="界" * 90_000),
    ToolCompleted("c1", "bash", "shell", 5, "done", output="\0" * 50_000),
    AssistantToolCallProposed(1, "c1", "multi_edit", {"edits": [{"old": "x" * 1900}] * 200}),
    AssistantToolCallProposed(1, "c1", "t", {f"key {n}": n for n in range(40_000)}),
    AssistantToolCallProposed(1, "c1", "t", {"a": [[[[["deep " * 9] * 9] * 9] * 9] * 9] * 9}),
    ToolTodoWriteUpdated("c1", [Todo(f"thing {n}", "pending") for n in range(9000)]),
    ToolShellCommand("c1", ["bash", "-c", "x" * 300_000], "/", [], "none"),
    AssistantFinalAnswer(1, "all", structured_output={"rows": ["row " * 20] * 9000}),
]


@pytest.mark.parametrize("fact", LARGE, ids=lambda fact: type(fact).__name__)
async def test_a_fact_too_large_for_an_event_is_stored_and_whole_in_an_artifact(
    recorded: Recorded, fact: Fact
) -> None:
    kept, whole = await recorded.stored(fact)
    assert type(kept) is type(fact)
    assert whole == fact
    assert recorded.seen[-1] == fact
    created = recorded.seen[-2]
    assert isinstance(created, ArtifactCreated)
    assert created.artifact_id == kept.whole_artifact_id


async def test_a_cut_text_names_the_artifact_that_has_all_of_it(recorded: Recorded) -> None:
    kept, _ = await recorded.stored(UserMessage(turn_index=0, text="界" * 90_000))
    assert isinstance(kept, UserMessage)
    assert kept.text.startswith("界" * 30_000)
    assert kept.text.endswith(f"(90000 characters; whole: artifact {kept.whole_artifact_id})")


async def test_a_large_fact_is_redacted_before_it_is_cut_or_kept(recorded: Recorded) -> None:
    words = "x" * 31_995 + SECRET + "\0" * 60_000
    kept, whole = await recorded.stored(ToolCompleted("c", "bash", "shell", 5, "", output=words))
    assert SECRET[:4] not in str(kept)
    assert SECRET[:4] not in str(whole)


async def test_a_fact_that_fits_stays_as_it_is(recorded: Recorded) -> None:
    fact = UserMessage(turn_index=0, text="x" * 200_000)
    assert await recorded.stored(fact) == (fact, fact)
    assert [type(one) for one in recorded.seen] == [UserMessage]


async def test_an_artifact_names_the_event_it_comes_from(recorded: Recorded) -> None:
    (invoked,) = await recorded.recorder.record(INVOKED)
    for _ in range(2):
        recorded.recorder.artifact("command_output", b"x", mime_type="text/plain", summary="")
    await recorded.recorder.record()
    pages = await recorded.journal.read(recorded.recorder.run_id, after=invoked.sequence)
    causes = [decode_fact(stored.body) for stored in pages]
    event_id = decode(invoked.body).event_id
    assert [one.created_by_event_id for one in causes if isinstance(one, ArtifactCreated)] == [
        event_id,
        event_id,
    ]


async def test_an_artifact_of_another_process_names_the_event_before_it(tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path)
    lease = await started(journal)
    journal.close()
    journal = SqliteJournal.open(tmp_path)
    last = decode((await journal.read(lease.run_id))[-1].body)
    created = ArtifactCreated("art_1", "patch", 0, "")
    (stored,) = await journal.append(lease.run_id, [created], fence=lease.fence)
    journal.close()
    fact = decode_fact(stored.body)
    assert isinstance(fact, ArtifactCreated)
    assert fact.created_by_event_id == last.event_id


values: st.SearchStrategy[Any] = st.recursive(
    st.text() | st.integers(-(2**50), 2**50) | st.integers(0, 60_000).map("\0界".__mul__),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(st.dictionaries(st.text(), values, max_size=6))
def test_whatever_is_cut_fits(value: dict[str, Any]) -> None:
    assert fits(cut_to_fit(AssistantToolCallProposed(1, "c1", "t", value), "art_1"))


async def test_the_words_of_a_task_are_not_rewritten_by_guesses(recorded: Recorded) -> None:
    guessed = "Set DB_PASSWORD=correct-horse-battery in .env.example."
    assert Redactor([]).text(guessed) != guessed
    task = TaskCreated(
        title="x",
        execution_kind="agent_loop",
        workspace_mode="clone",
        priority="normal",
        by="ada",
        prompt=f"{guessed} Not {SECRET}.",
    )
    kept, _ = await recorded.stored(task)
    assert isinstance(kept, TaskCreated)
    assert kept.prompt == f"{guessed} Not <redacted>."
