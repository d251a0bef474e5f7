// A user of the TypeScript SDK of both eras (@modelcontextprotocol/client 2.x) who approves what the server asks about.

import { installed, target, transport } from "./flow.mjs";

const { Client, SSEClientTransport: Sse, StreamableHTTPClientTransport: Http } = installed("@modelcontextprotocol/client");
const { StdioClientTransport: Stdio } = installed("@modelcontextprotocol/client/stdio");

const mode = target.era === "modern" ? { pin: "2026-07-28" } : target.era;
const options = { versionNegotiation: { mode }, capabilities: { elicitation: { form: {} } } };
const client = new Client({ name: "interop", version: "1" }, options);
const forms = [];
client.setRequestHandler("elicitation/create", async (request) => {
  forms.push(request.params.message);
  return { action: "accept", content: { decision: "approve" } };
});
await client.connect(transport({ Stdio, Http, Sse }));
const result = await client.callTool({ name: "execute_process", arguments: { file: "touch", args: ["made"] } });
console.log(JSON.stringify({ forms, structured: result.structuredContent }));
await client.close();
