// A browser, an agent, and what every case needs of them.
//
// Playwright is found from the folder that a case is started in; so is the browser.
import { createRequire } from "node:module";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import assert from "node:assert/strict";

const require = createRequire(join(process.cwd(), "package.json"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** A browser of its own, in which every page is watched. */
export class Browser {
  static async start() {
    const browser = new Browser();
    browser.home = mkdtempSync(join(tmpdir(), "console-"));
    browser.chromium = await chromium.launch({
      executablePath: join(process.cwd(), "chromium"),
      args: [...FLAGS, `--crash-dumps-dir=${browser.home}`],
      env: { ...process.env, HOME: browser.home },
      chromiumSandbox: false,
    });
    browser.complaints = [];
    browser.foreign = [];
    return browser;
  }

  /** A window that shares nothing with the others. */
  async window(site, options = {}) {
    const context = await this.chromium.newContext({ baseURL: site.url, ...options });
    context.setDefaultTimeout(20_000);
    const page = await context.newPage();
    page.on("console", (message) => {
      // What a case does on purpose: being refused, and being without a network.
      const meant = /responded with a status of (401|403|404|409)|ERR_INTERNET_DISCONNECTED/.test(message.text());
      if (message.type() === "error" && !meant) this.complaints.push(message.text());
    });
    page.on("pageerror", (error) => this.complaints.push(String(error)));
    page.on("dialog", (dialog) => {
      this.complaints.push(`a dialog: ${dialog.message()}`);
      dialog.dismiss();
    });
    context.on("request", (request) => {
      const { protocol, host } = new URL(request.url());
      if (protocol !== "data:" && host !== new URL(site.url).host) this.foreign.push(request.url());
    });
    return page;
  }

  /** Closes it; nothing may have gone wrong on any page, and nothing may have left this machine. */
  async end() {
    await this.chromium.close();
    rmSync(this.home, { recursive: true, force: true });
    assert.deepEqual(this.complaints, [], "the browser complained");
    assert.deepEqual(this.foreign, [], "a page asked other machines");
  }
}

export async function logIn(page, token, path = "/") {
  await page.goto(path);
  await page.getByLabel("Token or login code").fill(token);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("navigation", { name: "Places" }).waitFor();
}

/** An agent that speaks the protocol over HTTP. */
export class Agent {
  constructor(site, token) {
    this.site = site;
    this.token = token;
    this.next = 1;
  }

  async send(message) {
    const headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };
    if (this.token) headers.authorization = `Bearer ${this.token}`;
    if (this.session) headers["mcp-session-id"] = this.session;
    const body = JSON.stringify({ jsonrpc: "2.0", ...message });
    const answer = await fetch(`${this.site.url}/mcp`, { method: "POST", headers, body });
    this.session = answer.headers.get("mcp-session-id") ?? this.session;
    const text = await answer.text();
    const lines = text.split("\n").filter((line) => line.startsWith("data: {"));
    const all = lines.length ? lines.map((line) => JSON.parse(line.slice(6))) : text ? [JSON.parse(text)] : [];
    return all.find((said) => said.id === message.id);
  }

  async greet(name = "console-tests") {
    const params = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name, version: "1" } };
    await this.send({ id: this.next++, method: "initialize", params });
    await this.send({ method: "notifications/initialized" });
    return this;
  }

  /** What a tool answers, once somebody has decided. */
  async call(name, args) {
    const answer = await this.send({ id: this.next++, method: "tools/call", params: { name, arguments: args } });
    return answer.result?.structuredContent ?? answer;
  }
}

/** Nothing that keeps anybody from using a page. */
export async function accessible(page, where) {
  // The page's own policy lets no script in; this one comes by the debugger.
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const found = violations.filter((violation) => violation.impact !== "minor");
  const said = found.map((violation) => `${violation.id}: ${violation.nodes.map((node) => node.html).join("\n  ")}`);
  assert.deepEqual(said, [], `axe on ${where}`);
}

export async function fits(page, where) {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(wide <= 0, `${where} is ${wide} px wider than its window`);
}

export const until = async (what, check) => {
  for (const start = Date.now(); Date.now() - start < 20_000; ) {
    const found = await check();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  throw new Error(`never: ${what}`);
};

export { assert };
