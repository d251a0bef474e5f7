#!/usr/bin/env node
// An agent for the pages of jobs, by the Agent Client Protocol: it says, runs, edits and asks what its prompt
// begins with. Nothing of it is real but the order in which it is told.
import { createInterface } from "node:readline";

const say = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const waiting = new Map();
let next = 1000;
let cancelled = () => {};
const ask = (method, params) =>
  new Promise((resolve) => {
    waiting.set(next, resolve);
    say({ id: next++, method, params });
  });
const update = (update) => say({ method: "session/update", params: { sessionId: "conversation-1", update } });
const speak = (text) => update({ sessionUpdate: "agent_message_chunk", content: { type: "text", text } });
const call = (toolCallId, more) => update({ sessionUpdate: "tool_call", toolCallId, status: "in_progress", ...more });
const done = (toolCallId, more) => update({ sessionUpdate: "tool_call_update", toolCallId, status: "completed", ...more });
const said = (text) => [{ type: "content", content: { type: "text", text } }];

const OLD = "pub fn total(items: &[Item]) -> f64 {\n    items.iter().map(|item| item.price).sum()\n}";
const NEW = "/// Cents, so that nothing is lost to rounding.\npub fn total(items: &[Item]) -> u64 {\n    items.iter().map(|item| item.cents).sum()\n}";

async function story() {
  speak("I will look at the tests first, then at how prices are added up.");
  call("run-1", { kind: "execute", title: "cargo test" });
  done("run-1", { status: "failed", content: said("test cart::total_is_exact ... FAILED\n\nleft: 0.30000000000000004\nright: 0.3") });
  speak("The total is added up in floating point. I keep prices in cents instead.");
  call("edit-1", { kind: "edit", title: "src/cart.rs" });
  done("edit-1", { content: [{ type: "diff", path: "src/cart.rs", oldText: OLD, newText: NEW }] });
  call("run-2", { kind: "execute", title: "cargo test" });
  done("run-2", { content: said("test cart::total_is_exact ... ok\n\ntest result: ok. 12 passed") });
  const toolCall = { toolCallId: "run-3", kind: "execute", title: "git commit", rawInput: { command: "git commit -am 'Add prices up in cents'", description: "The tests pass; this keeps the change." } };
  const options = [
    { optionId: "yes", name: "Yes", kind: "allow_once" },
    { optionId: "no", name: "No", kind: "reject_once" },
  ];
  const { outcome } = await ask("session/request_permission", { sessionId: "conversation-1", toolCall, options });
  speak(outcome.optionId === "yes" ? "Done: prices are added up in cents, and all tests pass." : "I leave the change uncommitted.");
}

async function prompt(text) {
  if (text.startsWith("wait")) {
    speak("I think about it.");
    call("think-1", { kind: "other", title: "thinking" });
    await new Promise((resolve) => (cancelled = resolve));
    return "cancelled";
  }
  if (text.startsWith("Fix")) await story();
  else speak(`You said: ${text}`);
  return "end_turn";
}

createInterface({ input: process.stdin }).on("line", async (line) => {
  const message = JSON.parse(line);
  const answer = (result) => say({ id: message.id, result });
  if (message.method === undefined) return waiting.get(message.id)?.(message.result);
  if (message.method === "initialize") answer({ protocolVersion: 1, agentCapabilities: { loadSession: true }, agentInfo: { name: "painter", version: "1" } });
  else if (message.method === "session/new" || message.method === "session/load") answer({ sessionId: "conversation-1" });
  else if (message.method === "session/cancel") cancelled();
  else if (message.method === "session/prompt") {
    const stopReason = await prompt(message.params.prompt.map((part) => part.text ?? "").join("\n"));
    answer({ stopReason, usage: { inputTokens: 18204, outputTokens: 1311, totalTokens: 19515 } });
  } else if (message.id !== undefined) answer({});
});
