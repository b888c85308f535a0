"""One session with several clients: two viewers, and a controller that is replaced.

    python examples/audience.py                                   no key, no network

Two viewers watch while a controller prompts. Another controller takes over while an approval is
pending, and answers it. Then the runtime is drained, and a second one continues the session.
"""

import argparse
import asyncio
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory

from batten.embedded import (
    AskedCapabilities,
    DrainRequest,
    Identity,
    MessageEnvelope,
    ResetEnvelope,
    SnapshotEnvelope,
    SubscribeAsk,
    hosted,
)
from batten.protocols.maestro.outgoing import ResponseChunk, ResponseEnd, ServerRequest
from batten.serve.maestro.runtime import Runtime

SCENARIO = Path(__file__).with_name("greeting.json")
ANSWERS = AskedCapabilities(server_requests=("approval",))


async def look_on(runtime: Runtime, name: str) -> None:
    """A viewer: prints messages until the runtime is drained."""
    text = ""
    async with aclosing(runtime.attach(cursor=0)) as stream:
        async for envelope in stream:
            match envelope:
                case MessageEnvelope(message=ResponseChunk(content=words)):
                    text += words
                case MessageEnvelope(message=ResponseEnd()):
                    print(f"{name}: {text}")
                    text = ""
                case SnapshotEnvelope(snapshot=snapshot) | ResetEnvelope(snapshot=snapshot):
                    if not snapshot.state.is_ready:
                        print(f"{name}: {snapshot.state.last_status}")
                        return
                case _:
                    pass


async def until(runtime: Runtime, subscription_id: str, kind: type) -> object:
    """Read a subscription up to a message of this type."""
    async with aclosing(runtime.attach(subscription_id)) as stream:
        async for envelope in stream:
            if isinstance(envelope, MessageEnvelope) and isinstance(envelope.message, kind):
                return envelope.message
    raise EOFError("the runtime is gone")


async def perform(runtime: Runtime) -> None:
    """A prompt, a pending approval, and a second controller that decides it."""
    first = await runtime.subscribe(SubscribeAsk(capabilities=ANSWERS))
    prompt = {"type": "prompt", "content": "Say good day."}
    await runtime.message(prompt, connection_id=first.connection_id)
    request = await until(runtime, first.subscription_id, ServerRequest)
    assert isinstance(request, ServerRequest)
    second = await runtime.subscribe(SubscribeAsk(capabilities=ANSWERS, take_control=True))
    has_lease = runtime.heartbeat(first.connection_id).controller_lease_granted
    print(f"the first controller has the lease: {has_lease}; {request.tool} waits for the second")
    answer = {
        "type": "server_request_response",
        "request_id": request.request_id,
        "request_type": request.request_type,
        "approved": True,
    }
    await runtime.message(answer, connection_id=second.connection_id)
    await until(runtime, second.subscription_id, ResponseEnd)


async def go_on(runtime: Runtime) -> None:
    """One more prompt, in a session that another runtime began."""
    print(f"{runtime.state().state.last_status}, after cursor {runtime.state().cursor}")
    desk = await runtime.subscribe(SubscribeAsk(capabilities=ANSWERS))
    prompt = {"type": "prompt", "content": "And again?"}
    await runtime.message(prompt, connection_id=desk.connection_id)
    await until(runtime, desk.subscription_id, ResponseEnd)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default=f"scripted/{SCENARIO}")
    options = parser.parse_args()
    with TemporaryDirectory() as workspace:
        runner = Identity(runner_session_id="mrs_example", workspace_root=workspace)
        async with (
            hosted(model=options.model, runner=runner) as runtime,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(look_on(runtime, "gallery"))
            group.create_task(look_on(runtime, "stalls"))
            await perform(runtime)
            drained = await runtime.drain(DrainRequest(reason="example"))
            session_id = runtime.session_id
        async with hosted(runner=runner, restore=drained.manifest_path) as runtime:
            print(f"the same session: {runtime.session_id == session_id}")
            async with asyncio.TaskGroup() as group:
                group.create_task(look_on(runtime, "gallery"))
                await go_on(runtime)
                await runtime.drain()


if __name__ == "__main__":
    asyncio.run(main())
