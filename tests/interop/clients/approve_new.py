"""A user of the Python SDK of both eras (mcp 2.x) who approves what the server asks about."""

import json

import anyio
from mcp import Client
from mcp_types import ElicitResult

import flow
from new import server


async def main():
    target = flow.target()
    forms = []

    async def on_form(_context, params):
        forms.append(params.message)
        return ElicitResult(action="accept", content={"decision": "approve"})

    async with Client(server(target), mode=target["era"], elicitation_callback=on_form) as client:
        result = await client.call_tool("execute_process", {"file": "touch", "args": ["made"]})
        print(json.dumps({"forms": forms, "structured": result.structured_content}))


anyio.run(main)
