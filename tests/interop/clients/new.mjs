// The TypeScript SDK of both eras (@modelcontextprotocol/client 2.x).

import { installed, look, target, transport } from "./flow.mjs";

const { Client, SSEClientTransport: Sse, StreamableHTTPClientTransport: Http } = installed("@modelcontextprotocol/client");
const { StdioClientTransport: Stdio } = installed("@modelcontextprotocol/client/stdio");

const mode = target.era === "modern" ? { pin: "2026-07-28" } : target.era;
const client = new Client({ name: "interop", version: "1" }, { versionNegotiation: { mode } });
await client.connect(transport({ Stdio, Http, Sse }));
await look(client, client.getNegotiatedProtocolVersion(), (params, options) => client.callTool(params, options));
