// A user of the TypeScript SDK with sessions (@modelcontextprotocol/sdk 1.x) who approves what the server asks about.

import { installed, transport } from "./flow.mjs";

const sdk = (path) => installed(`@modelcontextprotocol/sdk/${path}.js`);
const { Client } = sdk("client/index");
const { ElicitRequestSchema } = sdk("types");
const { StdioClientTransport: Stdio } = sdk("client/stdio");
const { StreamableHTTPClientTransport: Http } = sdk("client/streamableHttp");
const { SSEClientTransport: Sse } = sdk("client/sse");

const client = new Client({ name: "interop", version: "1" }, { capabilities: { elicitation: {} } });
const forms = [];
client.setRequestHandler(ElicitRequestSchema, async (request) => {
  forms.push(request.params.message);
  return { action: "accept", content: { decision: "approve" } };
});
await client.connect(transport({ Stdio, Http, Sse }));
const result = await client.callTool({ name: "execute_process", arguments: { file: "touch", args: ["made"] } });
console.log(JSON.stringify({ forms, structured: result.structuredContent }));
await client.close();
