"""A server follows a session elsewhere while the server, the runtime and the way between them are
killed, stopped and cut: every canonical event once, numbered without gaps.
"""

import asyncio
from pathlib import Path

import pytest

from tests.conftest import Tell
from tests.service.macp.harming import HARMS, campaigning


async def test_harm_of_every_kind_loses_repeats_and_renumbers_nothing(tmp_path: Path) -> None:
    async with campaigning(tmp_path, seed=7) as campaign:
        run_id, talk = await campaign.followed()
        for harm in HARMS:
            await asyncio.to_thread(talk.hear, 5)
            await campaign.harm(harm)
        assert await campaign.check(run_id, talk) >= 5 * len(HARMS)


@pytest.mark.soak
async def test_a_hundred_kills_and_cuts_lose_repeat_and_renumber_nothing(
    tmp_path: Path, tell: Tell
) -> None:
    messages = runs = 0
    async with campaigning(tmp_path, seed=20261117) as campaign:
        while sum(campaign.harms.values()) < 100:
            run_id, talk = await campaign.followed()
            for _ in range(10):
                await asyncio.sleep(campaign.random.uniform(0.0, 0.8))
                await campaign.harm(campaign.random.choice(HARMS))
            messages += await campaign.check(run_id, talk)
            runs += 1
        tell(runs=runs, messages=messages, **campaign.harms)
