"""What every Python client does with the server, whichever SDK it is made of.

The target comes as one JSON argument: {transport, era, url} or {transport, era, command, args, env, cwd}.
What was seen leaves as one line of JSON on standard output.
"""

import json
import sys
import uuid
from abc import ABC, abstractmethod

import anyio


class Client(ABC):
    """One SDK with a connection."""

    protocol: str

    @abstractmethod
    async def tools(self) -> list: ...

    @abstractmethod
    async def read(self, uri: str) -> str: ...

    @abstractmethod
    async def call(self, tool: str, arguments: dict, on_progress=None) -> dict:
        """The result as {text, structured, isError}."""

    @abstractmethod
    async def call_and_cancel(self, tool: str, arguments: dict) -> None:
        """Cancels at the first sign of progress."""


def target() -> dict:
    return json.loads(sys.argv[1])


def shell(script: str, **more) -> dict:
    return {"file": "sh", "args": ["-c", script], **more}


async def look(client: Client) -> None:
    """Uses everything once and prints what was seen."""
    progress = []

    async def on_progress(done, total, message):
        progress.append({"progress": done, "message": message})

    seen = {
        "protocol": client.protocol,
        "tools": await client.tools(),
        "errors": [row["internalCode"] for row in json.loads(await client.read("countersign://errors"))],
        "echo": await client.call("execute_process", {"file": "echo", "args": ["hi"]}),
        "refused": await client.call("execute_process", {"file": "id", "args": []}),
        "slow": await client.call("execute_process", shell("echo one; sleep 1; echo two"), on_progress),
        "progress": progress,
    }
    request = f"cancelled-{uuid.uuid4()}"
    with anyio.fail_after(20):
        await client.call_and_cancel("execute_process", shell("echo begun; sleep 60", request_id=request))
    seen["cancelled"] = await client.call("command_status", {"request_id": request, "wait_ms": 10000})
    print(json.dumps(seen))
