"""The texts of ours in requests for permission have marks; the arguments stay as they are."""

from typing import Any

import pytest
from msgspec import UNSET

from batten.contract.facts import ApprovalRequested
from batten.protocols.acp.meter import title_of as title_of_session
from batten.protocols.acp.tool_calls import title_of
from batten.protocols.maestro.asking import put
from batten.serve.acp.requests import options_of

pytestmark = pytest.mark.attack

COMMAND = "rm\u200b -rf\u3164 .\U000e0041 # ی\u200cخ"
SHOWN = "rm\ufffd -rf\ufffd .\ufffd # ی\ufffdخ"
ARGUMENTS: dict[str, Any] = {"command": COMMAND}


def test_a_maestro_client_is_shown_marks_and_given_the_arguments() -> None:
    fact = ApprovalRequested(
        approval_id="a",
        tool_call_id="c",
        kind="bash",
        summary=COMMAND,
        policy_reason="",
        digest="",
        resolvers=[],
        deadline_at="",
    )
    request = put(fact, tool="bash", args=ARGUMENTS, at_ms=0)
    assert (request.summary_label, request.action_description) == (SHOWN, SHOWN)
    assert request.args == ARGUMENTS
    assert request.action_description is not UNSET


def test_an_editor_is_shown_marks_in_titles_and_options() -> None:
    assert title_of("bash", ARGUMENTS) == SHOWN
    assert [option.name for option in options_of(f"bash({COMMAND})")] == [
        "Allow",
        f"Always allow bash({SHOWN})",
        "Reject",
        f"Always reject bash({SHOWN})",
    ]
    assert title_of_session("a\u200b 👩‍👧 ی\u200cخ") == "a\ufffd 👩‍👧 ی\u200cخ"
