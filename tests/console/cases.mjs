// What a person does with the console, one function a case. Each has a server of its own.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { Agent, accessible, assert, fits, logIn, until } from "./driver.mjs";

const touch = (name) => ({ file: "touch", args: [name] });
const card = (page, text) => page.locator(".card", { hasText: text });

export async function a_token_logs_in_and_out(browser, site) {
  const page = await browser.window(site);
  await page.goto("/record?status=ok");
  assert.equal(new URL(page.url()).pathname, "/login", "no page without a login");
  const box = page.getByLabel("Token or login code");
  await box.fill("cs_operator_wrong");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").filter({ hasText: "not in force" }).waitFor();
  await box.fill(site.tokens.agent);
  await page.keyboard.press("Enter");
  await page.getByRole("alert").filter({ hasText: "agent's token" }).waitFor();
  await box.fill(site.tokens.ana);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Record" }).waitFor();
  assert.equal(new URL(page.url()).search, "?status=ok", "it remembers where to go");
  const [cookie] = await page.context().cookies();
  assert.deepEqual([cookie.httpOnly, cookie.sameSite, cookie.path], [true, "Strict", "/"]);
  assert.equal(await page.evaluate(() => document.cookie), "");
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByLabel("Token or login code").waitFor();
  // The cookie that was is worth nothing any longer.
  await page.context().addCookies([cookie]);
  await page.goto("/");
  assert.equal(new URL(page.url()).pathname, "/login");
}

export async function approving_by_mouse_lets_the_call_run(browser, site) {
  const page = await browser.window(site);
  await logIn(page, site.tokens.ana);
  await page.getByText("Nothing waits").waitFor();
  const agent = await new Agent(site).greet();
  const call = agent.call("execute_process", touch("made"));
  const question = card(page, "touch made");
  await question.waitFor();
  await until("the title counts", async () => (await page.title()).startsWith("(1) "));
  assert.equal(await question.locator(".program").textContent(), "touch");
  assert.ok(!existsSync(join(site.work, "made")));
  await page.waitForTimeout(900);
  await question.getByRole("button", { name: "Approve", exact: true }).click();
  await question.getByText(/Approved.* by ana/).waitFor();
  const result = await call;
  assert.equal(result.status, "ok", JSON.stringify(result));
  assert.ok(existsSync(join(site.work, "made")));
  await until("the title is plain again", async () => !(await page.title()).startsWith("("));
}
