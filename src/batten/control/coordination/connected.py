"""Chairs panels whose members are other programs, connected to this runtime over gRPC.

The runtime opens the session when the question is asked, and commits what the messages amount to
as soon as the policy lets it; members commit themselves where the policy lets them.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec

from batten.contract.errors import CallerError
from batten.control.coordination.chair import APPROVAL, open_panel
from batten.control.coordination.convening import PanelQuestion
from batten.control.coordination.panel import (
    LAST_CALL_S,
    Decided,
    concluded,
    decided_by,
    opening_of,
    until_over,
)
from batten.control.coordination.runtime import Runtime


class ConnectedPanels:
    """Lets connected programs decide."""

    def __init__(self, runtime: Runtime, is_open_to_all: Callable[[], bool]) -> None:
        """`is_open_to_all`: callers may give themselves any name."""
        self._runtime = runtime
        self._is_open_to_all = is_open_to_all

    async def decide(self, question: PanelQuestion) -> Decided:
        """Raises `CallerError` while anybody could vote in a member's name."""
        if self._is_open_to_all():
            raise CallerError(
                "the runtime takes any name for true: give it --tokens, --jwt-issuer or API keys",
                code="config",
            )
        convened = question.convened
        asked = {"panel": convened.panel, "run_id": question.row.run_id, "about": convened.about}
        opening = msgspec.structs.replace(
            opening_of(question.panel),
            about=convened.about,
            extensions={APPROVAL: msgspec.json.encode(asked)},
        )
        chair = await open_panel(self._runtime, opening)
        run_id = await self._runtime.run_of(chair.session_id) or ""
        last_call_s = min(LAST_CALL_S, question.seconds_left / 10)
        with suppress(TimeoutError):
            async with asyncio.timeout(question.seconds_left - last_call_s):
                await until_over(chair, run_id)
        with suppress(TimeoutError):
            async with asyncio.timeout(question.seconds_left):
                if not await concluded(chair, at_last=True):
                    await until_over(chair, run_id)
        return await decided_by(chair, run_id, "the members came to no decision in time")
