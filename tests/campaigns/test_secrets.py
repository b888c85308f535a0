"""Planted secrets: no piece of one is stored, the client that asked gets the answer as it was said,
and nothing else of the output has a piece. What must come back does, exactly."""

import asyncio
import hashlib
import secrets
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct

from tests.campaigns.stage import Finished, Json, Stage, bash, call, say, terminal
from tests.models.server import ModelServer, answer
from tests.models.wire import anthropic_turn

PIECE = 12
"""A stretch of a secret this long is a leak: a stream may have cut the rest off."""


class Planted(Struct, frozen=True):
    known: str
    """A value of an environment variable whose name says that it is secret."""
    shaped: str
    """A value nobody announced, of a known format."""
    guessed: str
    """A value that only its name gives away. It occurs in text from outside alone: the words of a
    model are not rewritten by guesses."""

    def certain(self) -> tuple[str, str]:
        """Those that are also found in the words of a model or a person."""
        return self.known, self.shaped


@pytest.fixture
def planted(stage: Stage) -> Planted:
    made = Planted(
        f"hush-{secrets.token_hex(20)}",
        f"ghp_{secrets.token_hex(18)}",
        f"swordfish-{secrets.token_hex(12)}",
    )
    stage.environ["MY_API_KEY"] = made.known
    return made


def _leaks(planted: Planted, data: bytes) -> set[str]:
    return {
        piece
        for secret in (*planted.certain(), planted.guessed)
        for start in range(5, len(secret) - PIECE + 1)
        if (piece := secret[start : start + PIECE]).encode() in data
    }


def _assert_nothing_leaks(stage: Stage, planted: Planted, *outputs: Finished) -> None:
    for path in sorted(stage.home.rglob("*")):
        if path.is_file():
            assert not _leaks(planted, path.read_bytes()), path
    shown = [stage.batten("runs"), stage.batten("runs", "--json"), stage.batten("requests")]
    for run in stage.runs():
        shown += [
            stage.batten(command, run["run_id"])
            for command in ("show", "events", "artifacts", "diff")
        ]
    for ended in (*outputs, *shown):
        assert not _leaks(planted, ended.out + ended.err)


def _without_answers(ended: Finished, output: str, *answers: str) -> Finished:
    """The rest of the output, where these answers are given as the model said them."""
    if output == "events":  # read from the journal
        return ended
    if output == "text":
        assert ended.out.decode() == f"{answers[-1]}\n"
        return msgspec.structs.replace(ended, out=b"")
    frames = ended.frames()
    assert frames[-1].pop("result") == answers[-1]
    blocks = [block for one in frames if one["type"] == "message" for block in one["content"]]
    texts = [block.pop("text") for block in blocks if block["type"] == "text"]
    assert texts == (list(answers) if output == "stream-json" else [])
    return msgspec.structs.replace(ended, out=msgspec.json.encode(frames))


def _every_way_in(planted: Planted) -> list[list[Json]]:
    """A secret in a file, in output, in output cut in two, in arguments and in words."""
    frames = [[call("read_file", path="settings.ini")], [bash("cat settings.ini >&2; env")]]
    for number, secret in enumerate(planted.certain()):
        half = len(secret) // 2
        frames += [
            [bash(f"head -c {half} key{number}; sleep 0.15; tail -c +{half + 1} key{number}")],
            [say(_answer(secret), stream_ms=100)],
            [bash(f"printf %s {secret} | sha256sum | cut -c -64 > digest{number}")],
        ]
    # The texts end their turns: each is a prompt of its own.
    return [*frames, [say("Done.")]]


def _answer(secret: str) -> str:
    return f"The key is {secret}, as you know."


def _write_settings(stage: Stage, planted: Planted) -> Path:
    for number, secret in enumerate(planted.certain()):
        (stage.workspace / f"key{number}").write_text(secret)
    path = stage.workspace / "settings.ini"
    path.write_text(
        f"[service]\nkey = {planted.known}\nname = old\npassword = {planted.guessed}\n"
        f"token = {planted.shaped}\n"
    )
    return path


@pytest.mark.parametrize("output", ["text", "json", "stream-json", "events"])
def test_a_secret_is_in_no_stored_byte_and_on_no_output_but_the_answer(
    stage: Stage, planted: Planted, output: str
) -> None:
    _write_settings(stage, planted)
    model = stage.scenario(*_every_way_in(planted))
    prompt = f"Use {planted.known} and {planted.shaped}."
    first = stage.start(
        "-p", prompt, "--model", model, "--allow", "*", "--output-format", output,
        "--progress", "always", "--record", str(stage.home / "recorded.json"),
    ).end()  # fmt: skip
    session = stage.runs()[0]["session_id"]
    others = [stage.resume(session, prompt, output=output).end() for _ in range(2)]
    assert [ended.code for ended in (first, *others)] == [0, 0, 0], first.err
    for number, secret in enumerate(planted.certain()):
        # The effect had the true value, whatever is told of it.
        wanted = hashlib.sha256(secret.encode()).hexdigest()
        assert (stage.workspace / f"digest{number}").read_text().strip() == wanted
    answers = *map(_answer, planted.certain()), "Done."
    rests = [
        _without_answers(ended, output, answer)
        for ended, answer in zip((first, *others), answers, strict=True)
    ]
    _assert_nothing_leaks(stage, planted, *rests)
    stage.verify()


async def test_a_secret_cut_in_two_by_a_provider_is_in_no_stored_byte(
    stage: Stage, planted: Planted
) -> None:
    _write_settings(stage, planted)
    text = f"I see {planted.known} and {planted.shaped} here."
    arguments = {"command": f"echo {planted.known} {planted.shaped} > copied"}
    turns = [anthropic_turn(text, [("call_1", "bash", arguments)]), anthropic_turn(text)]
    async with ModelServer([answer(turn, piece=97) for turn in turns]) as server:
        playing = stage.start(
            "-p", text, "--model", "anthropic/claude-sonnet-4-6", "--allow", "bash",
            "--output-format", "stream-json",
            **server.environ(),
        )  # fmt: skip
        ended = await asyncio.to_thread(playing.end)
        assert ended.code == 0, ended.err
        assert all(text.encode() in request.body for request in server.requests)
    copied = (stage.workspace / "copied").read_text()
    assert copied == f"{planted.known} {planted.shaped}\n"
    _assert_nothing_leaks(stage, planted, _without_answers(ended, "stream-json", text, text))
    stage.verify()


def _edited(stage: Stage, planted: Planted) -> tuple[Path, bytes, bytes]:
    """A run that edits a file which holds secrets: the file, what it was and what it is."""
    path = _write_settings(stage, planted)
    before = path.read_bytes()
    model = stage.scenario(
        [call("read_file", path="settings.ini")],
        [call("edit_file", path="settings.ini", old_string="name = old", new_string="name = new")],
        [
            call(
                "edit_file",
                path="settings.ini",
                old_string=f"key = {planted.known}",
                new_string=f"key = {planted.known[::-1]}",
            )
        ],
        [call("write_file", path="other.ini", content=f"token = {planted.shaped}\n")],
        [say("Changed.")],
    )
    ended = stage.prompt(model, "--permission-mode", "acceptEdits").end()
    assert ended.code == 0, ended.err
    types = [one["type"] for one in ended.frames()]
    assert types.count("tool.completed") == 4, ended.out
    after = path.read_bytes()
    assert planted.known[::-1].encode() in after
    assert (stage.workspace / "other.ini").read_text() == f"token = {planted.shaped}\n"
    _assert_nothing_leaks(stage, planted, ended)
    return path, before, after


def test_an_edit_of_a_file_that_holds_secrets_reverts_exactly(
    stage: Stage, planted: Planted
) -> None:
    path, before, _ = _edited(stage, planted)
    (run,) = stage.runs()
    reverted = stage.batten("revert", run["run_id"])
    assert reverted.code == 0, reverted.err
    assert path.read_bytes() == before
    assert not (stage.workspace / "other.ini").exists()
    _assert_nothing_leaks(stage, planted, reverted)
    stage.verify()


def test_without_its_key_a_revert_is_refused_and_changes_nothing(
    stage: Stage, planted: Planted
) -> None:
    path, before, after = _edited(stage, planted)
    (run,) = stage.runs()
    stored = stage.stored(run["run_id"])
    key = stage.home / "seal.key"
    key.rename(stage.directory / "away.key")
    refused = stage.batten("revert", run["run_id"])
    assert refused.code != 0
    assert b"seal.key" in refused.err
    assert b"Traceback" not in refused.err
    assert path.read_bytes() == after
    assert stage.stored(run["run_id"]) == stored
    assert not key.exists()
    (stage.directory / "away.key").rename(key)
    assert stage.batten("revert", run["run_id"]).code == 0
    assert path.read_bytes() == before
    stage.verify()


def _killed_before_its_effect(stage: Stage, planted: Planted) -> str:
    """A run that died while a call with a secret in its arguments waited for an approval."""
    model = stage.scenario([bash(f"echo {planted.known} > copied")], [say("Done.")])
    playing = stage.start(
        "-p", "go", "--model", model, "--ask-operator", "--output-format", "events"
    )
    run_id = str(playing.until_type("approval.requested")["run_id"])
    playing.kill()
    playing.end()
    return run_id


def test_a_pending_call_with_a_secret_is_taken_up_with_its_true_arguments(
    stage: Stage, planted: Planted
) -> None:
    run_id = _killed_before_its_effect(stage, planted)
    ended = stage.resume(run_id, "--allow", "bash").end()
    assert ended.code == 0, ended.err
    assert (stage.workspace / "copied").read_text() == f"{planted.known}\n"
    _assert_nothing_leaks(stage, planted, ended)


def test_without_the_key_a_pending_call_is_refused_and_never_run_altered(
    stage: Stage, planted: Planted
) -> None:
    run_id = _killed_before_its_effect(stage, planted)
    key = stage.home / "seal.key"
    key.rename(stage.directory / "away.key")
    refused = stage.resume(run_id, "--allow", "bash").end()
    assert refused.code == 1
    assert b"seal.key" in refused.err
    assert b"Traceback" not in refused.err
    assert not (stage.workspace / "copied").exists()
    (stage.directory / "away.key").rename(key)
    ended = stage.resume(run_id, "--allow", "bash").end()
    assert ended.code == 0, ended.err
    assert terminal(ended.frames())["type"] == "run.finished"
    assert (stage.workspace / "copied").read_text() == f"{planted.known}\n"
    _assert_nothing_leaks(stage, planted, refused, ended)
