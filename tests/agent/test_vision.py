"""Images in requests: shown under their true type, or left out with a note in words."""

from batten.agent.vision import only_pictures
from batten.contract.conversation import Image, Message, Text, ToolResult
from tests.agent.acting import PIXEL
from tests.agent.stage import Stage, finish
from tests.models.calls import ask
from tests.models.server import ModelServer, answer
from tests.models.wire import anthropic_turn


async def test_what_is_no_picture_is_told_in_words_and_spoils_no_later_prompt(
    stage: Stage,
) -> None:
    replies = [answer(anthropic_turn("I see none")), answer(anthropic_turn("a pixel"))]
    async with ModelServer(replies) as server:
        stage.environ |= server.environ()
        async with stage.session("--model", "anthropic/claude-opus-4") as session:
            images = (Image("image/png", b"<html>404</html>"), Image("image/png", b""))
            await finish(session, await session.prompt("Look", images))
            await finish(session, await session.prompt("Again", (Image("image/gif", PIXEL),)))
        broken, _, again = server.requests[1].json()["messages"]
    note = "[an image was left out: it is no PNG, JPEG, GIF or WebP]"
    assert [block["text"] for block in broken["content"]] == ["Look", note, note]
    assert again["content"][1]["source"]["media_type"] == "image/png"


def test_messages_whose_pictures_are_right_stay_the_same_objects() -> None:
    picture = Image("image/png", PIXEL)
    shown = Message("user", (Text("look"), picture, ToolResult("c1", "see", "", images=(picture,))))
    (kept,) = only_pictures(ask(messages=(shown,))).messages
    assert kept is shown
