"""`--attach`: files beside the prompt, as text in it or as pictures for the model."""

import base64
import os

import pytest

from batten.cli.prompt import LARGEST
from batten.models.vision import takes_images
from tests.agent.acting import PIXEL
from tests.agent.stage import Stage, say
from tests.models.server import answer
from tests.models.wire import anthropic_turn, chat_turn

from .invoking import Json, Shell, serving
from .test_prompt import prompted


@pytest.fixture
def model(stage: Stage) -> str:
    return stage.scenario([say("well")])


def attachments(shell: Shell) -> list[Json]:
    """What the newest run recorded as attached."""
    events = shell("events", shell.run_ids()[-1]).frames()
    return [one["data"] for one in events if one["type"] == "user.attachment"]


def test_a_text_is_in_the_prompt_in_a_marked_block_and_recorded(shell: Shell, model: str) -> None:
    (shell.stage.workspace / "notes.md").write_text("one\ntwo\n")
    said = shell("-p", "Sum up", "--attach", "notes.md", "--model", model)
    assert (said.code, said.err) == (0, "")
    assert prompted(shell) == 'Sum up\n\n<attached name="notes.md">\none\ntwo\n</attached>'
    (attached,) = attachments(shell)
    assert (attached["kind"], attached["name"]) == ("file", "notes.md")
    assert shell("artifacts", attached["artifact_id"]).out == b"one\ntwo\n"


def test_several_files_and_piped_data_join_one_prompt(shell: Shell, model: str) -> None:
    for name in ("a.txt", "b.txt"):
        (shell.stage.workspace / name).write_text(f"this is {name}")
    flags = ["--attach", "a.txt", "--attach=b.txt", "--model", model]
    assert shell("-p", "Compare", *flags, stdin=b"piped").code == 0
    text = prompted(shell)
    assert text.index("<stdin>\npiped") < text.index("this is a.txt") < text.index("this is b.txt")
    assert len(attachments(shell)) == 2


def test_a_picture_goes_to_the_provider_as_one(shell: Shell) -> None:
    (shell.stage.workspace / "shot.dat").write_bytes(PIXEL)
    with serving(shell, [answer(anthropic_turn("a pixel"))]) as server:
        said = shell("-p", "What?", "--attach", "shot.dat", "--model", "anthropic/claude-opus-4")
        (message,) = server.requests[0].json()["messages"]
    assert said.out == b"a pixel\n"
    text, image = message["content"]
    assert text["text"] == "What?\n\n[attached picture: shot.dat]"
    assert image["source"]["media_type"] == "image/png"
    assert base64.b64decode(image["source"]["data"]) == PIXEL
    (attached,) = attachments(shell)
    assert (attached["kind"], attached["mime"]) == ("image", "image/png")


def test_a_model_without_vision_is_told_in_words_and_that_is_said(shell: Shell) -> None:
    (shell.stage.workspace / "shot.png").write_bytes(PIXEL)
    shell.set(DEEPSEEK_API_KEY="k")
    with serving(shell, [answer(chat_turn("I see nothing"))]) as server:
        shell.set(DEEPSEEK_BASE_URL=server.environ()["OPENAI_BASE_URL"])
        said = shell("-p", "What?", "--attach", "shot.png", "--model", "deepseek/deepseek-chat")
        body = server.requests[0].body.decode()
    assert said.code == 0
    assert "batten: deepseek-chat takes no images: they are left out\n" in said.err
    assert "an image was left out" in body
    assert "base64" not in body
    events = shell("events", shell.run_ids()[0]).frames()
    (missing,) = [one for one in events if one["type"] == "error.model_capability_missing"]
    assert missing["data"] == {
        "model": "deepseek-chat",
        "missing_capability": "image_input",
        "fallback_strategy": "image_left_out",
    }


def test_models_that_read_text_alone_are_known_by_name() -> None:
    assert not takes_images("deepseek", "deepseek-reasoner")
    assert not takes_images("openrouter", "deepseek/deepseek-chat")
    assert not takes_images("openai", "o3-mini")
    assert not takes_images("openai-chat", "o3-mini")
    assert not takes_images("xai", "grok-3")
    assert not takes_images("groq", "llama-3.3-70b-versatile")
    assert takes_images("groq", "llama-3.2-11b-vision-preview")
    assert takes_images("openai", "gpt-4o")
    assert takes_images("anthropic", "claude-sonnet-4-6")
    assert takes_images("compat", "anything")


def test_a_file_that_is_missing_or_cannot_be_read_is_missing_input(
    shell: Shell, model: str
) -> None:
    os.mkfifo(shell.stage.workspace / "pipe")
    reasons = {
        "nowhere.txt": "there is no such file",
        "pipe": "it is no regular file",
        ".": "it is a directory",
    }
    for name, reason in reasons.items():
        said = shell("-p", "go", "--attach", name, "--model", model)
        assert (said.code, said.out) == (66, b"")
        assert f"--attach {name}: {reason}" in said.err
    assert shell.run_ids() == []


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.bin", b"\0\1\2", "is not text"),
        ("a.bmp", b"BM....", "no PNG, JPEG, GIF or WebP"),
        ("a.pdf", b"%PDF-1.7\n\0", "is not text"),
    ],
)
def test_a_file_that_is_neither_text_nor_picture_is_a_usage_error(
    shell: Shell, model: str, name: str, data: bytes, words: str
) -> None:
    (shell.stage.workspace / name).write_bytes(data)
    said = shell("-p", "go", "--attach", name, "--model", model, "--output-format", "json")
    assert (said.code, said.result["outcome"]) == (64, "usage")
    assert words in said.result["error"]
    assert words in said.err


def test_attached_texts_count_with_the_prompt(shell: Shell, model: str) -> None:
    (shell.stage.workspace / "a.txt").write_bytes(b"x" * (LARGEST - 2))
    assert shell("-p", "go", "--attach", "a.txt", "--model", model).code == 0
    said = shell("-p", "go!", "--attach", "a.txt", "--model", model)
    assert said.code == 78
    assert str(LARGEST) in said.err


def test_a_picture_over_the_limit_is_refused(shell: Shell, model: str) -> None:
    (shell.stage.workspace / "a.png").write_bytes(PIXEL + b"x" * LARGEST)
    assert shell("-p", "go", "--attach", "a.png", "--model", model).code == 78
    (shell.stage.workspace / "b.png").write_bytes(PIXEL + b"x" * (LARGEST - 100))
    thrice = ["--attach", "b.png"] * 3
    said = shell("-p", "go", *thrice, "--model", model)
    assert said.code == 78
    assert "together" in said.err


def test_stream_input_has_no_place_for_attachments(shell: Shell, model: str) -> None:
    flags = ["--input-format", "stream-json", "--attach", "a.txt", "--model", model]
    said = shell(*flags)
    assert said.code == 64
    assert "--attach" in said.err
