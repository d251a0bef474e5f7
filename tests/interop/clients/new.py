"""The Python SDK of both eras (mcp 2.x)."""

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client

import flow


class New(flow.Client):
    def __init__(self, client: Client):
        self.client = client
        self.protocol = client.protocol_version

    async def tools(self):
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def read(self, uri):
        return (await self.client.read_resource(uri)).contents[0].text

    async def call(self, tool, arguments, on_progress=None):
        result = await self.client.call_tool(tool, arguments, progress_callback=on_progress)
        return {
            "text": result.content[0].text,
            "structured": result.structured_content,
            "isError": bool(result.is_error),
        }

    async def call_and_cancel(self, tool, arguments):
        begun = anyio.Event()

        async def on_progress(*_):
            begun.set()

        async with anyio.create_task_group() as group:
            group.start_soon(self.call, tool, arguments, on_progress)
            await begun.wait()
            group.cancel_scope.cancel()


def server(target: dict):
    if target["transport"] == "stdio":
        return StdioServerParameters(**{name: target[name] for name in ("command", "args", "env", "cwd")})
    return target["url"] if target["transport"] == "http" else sse_client(target["url"])


async def main():
    target = flow.target()
    async with Client(server(target), mode=target["era"]) as client:
        await flow.look(New(client))


if __name__ == "__main__":
    anyio.run(main)
