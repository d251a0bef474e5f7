"""The Python SDK of the revisions with sessions (mcp 1.x)."""

from contextlib import asynccontextmanager

import anyio
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

import flow


class Old(flow.Client):
    def __init__(self, session: ClientSession, protocol: str):
        self.session = session
        self.protocol = protocol

    async def tools(self):
        return [tool.name for tool in (await self.session.list_tools()).tools]

    async def read(self, uri):
        return (await self.session.read_resource(uri)).contents[0].text

    async def call(self, tool, arguments, on_progress=None):
        result = await self.session.call_tool(tool, arguments, progress_callback=on_progress)
        return {
            "text": result.content[0].text,
            "structured": result.structuredContent,
            "isError": bool(result.isError),
        }

    async def call_and_cancel(self, tool, arguments):
        # This SDK cancels nothing by itself: the host names the request.
        request = self.session._request_id
        begun = anyio.Event()

        async def on_progress(*_):
            begun.set()

        async with anyio.create_task_group() as group:
            group.start_soon(self.call, tool, arguments, on_progress)
            await begun.wait()
            params = types.CancelledNotificationParams(requestId=request, reason="test")
            cancelled = types.CancelledNotification(method="notifications/cancelled", params=params)
            await self.session.send_notification(types.ClientNotification(cancelled))
            group.cancel_scope.cancel()


@asynccontextmanager
async def streams(target: dict):
    if target["transport"] == "stdio":
        command = {name: target[name] for name in ("command", "args", "env", "cwd")}
        async with stdio_client(StdioServerParameters(**command)) as (read, write):
            yield read, write
    elif target["transport"] == "http":
        async with streamable_http_client(target["url"]) as (read, write, _):
            yield read, write
    else:
        async with sse_client(target["url"]) as (read, write):
            yield read, write


async def main():
    async with streams(flow.target()) as (read, write), ClientSession(read, write) as session:
        hello = await session.initialize()
        await flow.look(Old(session, hello.protocolVersion))


if __name__ == "__main__":
    anyio.run(main)
