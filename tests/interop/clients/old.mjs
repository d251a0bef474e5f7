// The TypeScript SDK of the revisions with sessions (@modelcontextprotocol/sdk 1.x).

import { installed, look, transport } from "./flow.mjs";

const sdk = (path) => installed(`@modelcontextprotocol/sdk/client/${path}.js`);
const { Client } = sdk("index");
const { StdioClientTransport: Stdio } = sdk("stdio");
const { StreamableHTTPClientTransport: Http } = sdk("streamableHttp");
const { SSEClientTransport: Sse } = sdk("sse");

const client = new Client({ name: "interop", version: "1" });
const wire = transport({ Stdio, Http, Sse });
let protocol;
// Transports are told the revision that was agreed upon; the client has no word for it.
wire.setProtocolVersion = ((told) => (version) => {
  protocol = version;
  told?.call(wire, version);
})(wire.setProtocolVersion);
await client.connect(wire);
await look(client, protocol, (params, options) => client.callTool(params, undefined, options));
