"""A user of the Python SDK with sessions (mcp 1.x) who approves what the server asks about."""

import json

import anyio
from mcp import ClientSession, types

import flow
from old import streams


async def main():
    forms = []

    async def on_form(_context, params):
        forms.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "approve"})

    async with streams(flow.target()) as (read, write):
        async with ClientSession(read, write, elicitation_callback=on_form) as session:
            await session.initialize()
            result = await session.call_tool("execute_process", {"file": "touch", "args": ["made"]})
            print(json.dumps({"forms": forms, "structured": result.structuredContent}))


anyio.run(main)
