"""Shows the events of the bus: python see_bus.py [--add-stream] [ADDRESS]."""

import asyncio
import json
import os
import sys
from typing import Any

from nats.aio.client import Client
from nats.errors import TimeoutError as NoMore
from nats.js import JetStreamContext

ADDRESS = os.environ.get("MAESTRO_EVENT_BUS_URL", "nats://127.0.0.1:4222")


async def main(words: list[str]) -> None:
    client = Client()
    await client.connect(ADDRESS, reconnect_time_wait=1)
    bus: Any = JetStreamContext(client)
    if "--add-stream" in words:
        # On disk, and repeats are dropped for five minutes.
        await bus.add_stream(name="MAESTRO", subjects=["maestro.>"], duplicate_window=300)
    reading = await bus.subscribe("maestro.>", ordered_consumer=True)
    try:
        while True:
            event = json.loads((await reading.next_msg(timeout=1)).data)
            run = event["data"]["correlation"].get("agent_run_id", "")
            print(event["time"], event["type"].removeprefix("maestro."), run)
    except NoMore:
        await client.close()


asyncio.run(main(sys.argv[1:]))
