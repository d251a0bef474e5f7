// What every JavaScript client does with the server, whichever SDK it is made of.
//
// The target comes as one JSON argument: {transport, era, url} or {transport, era, command, args, env, cwd}.
// What was seen leaves as one line of JSON on standard output. Packages are those of the working directory.

import { createRequire } from "node:module";

export const installed = createRequire(`${process.cwd()}/`);
export const target = JSON.parse(process.argv[2]);

/** A transport of the SDK for the target. */
export function transport({ Stdio, Http, Sse }) {
  switch (target.transport) {
    case "stdio":
      return new Stdio({ command: target.command, args: target.args, env: target.env, cwd: target.cwd });
    case "http":
      return new Http(new URL(target.url));
    case "sse":
      return new Sse(new URL(target.url));
    default:
      throw new Error(`no transport ${target.transport}`);
  }
}

const shell = (script, more = {}) => ({ file: "sh", args: ["-c", script], ...more });

/** Uses everything once and prints what was seen; `callTool(params, options)` is the SDK's. */
export async function look(client, protocol, callTool) {
  const call = async (name, args, options) => {
    const { content, structuredContent, isError } = await callTool({ name, arguments: args }, options);
    return { text: content[0].text, structured: structuredContent, isError: isError ?? false };
  };
  const progress = [];
  const onprogress = ({ progress: done, message }) => progress.push({ progress: done, message });

  const { tools } = await client.listTools();
  const { contents } = await client.readResource({ uri: "countersign://errors" });
  const seen = {
    protocol,
    tools: tools.map((tool) => tool.name),
    errors: JSON.parse(contents[0].text).map((row) => row.internalCode),
    echo: await call("execute_process", { file: "echo", args: ["hi"] }),
    refused: await call("execute_process", { file: "id", args: [] }),
    slow: await call("execute_process", shell("echo one; sleep 1; echo two"), { onprogress }),
    progress,
  };

  const request_id = `cancelled-${crypto.randomUUID()}`;
  const abort = new AbortController();
  const cut = call("execute_process", shell("echo begun; sleep 60", { request_id }), {
    onprogress: () => abort.abort("test"),
    signal: abort.signal,
    timeout: 20_000,
  });
  const ended = await cut.then(
    (result) => ({ result }),
    (error) => ({ error }),
  );
  if (!abort.signal.aborted) {
    throw new Error(`the call ended before it was cancelled: ${JSON.stringify(ended)}`);
  }
  seen.cancelled = await call("command_status", { request_id, wait_ms: 10_000 });
  console.log(JSON.stringify(seen));
  await client.close();
}
