// What a person does with the console, one function a case. Each has a server of its own.
import { existsSync, readFileSync } from "node:fs";
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
  const open = await page.context().newPage();
  await open.goto("/");
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByLabel("Token or login code").waitFor();
  // A page that was left open notices.
  await open.getByLabel("Token or login code").waitFor();
  // The cookie that was is worth nothing any longer.
  await page.context().addCookies([cookie]);
  await page.goto("/");
  assert.equal(new URL(page.url()).pathname, "/login");
}

export async function a_login_code_works_once(browser, site) {
  const page = await browser.window(site);
  let during;
  await page.route("**/login", (route) => {
    if (route.request().method() === "POST") during = page.url();
    return route.continue();
  });
  await page.goto(`/#token=${site.code}`);
  await page.getByRole("navigation", { name: "Places" }).waitFor();
  assert.equal(new URL(during).hash, "", "the code leaves the address bar before it is sent");
  assert.ok(!page.url().includes("token"));
  const other = await browser.window(site);
  await other.goto(`/#token=${site.code}`);
  await other.getByRole("alert").filter({ hasText: "used before" }).waitFor();
  assert.equal((await other.context().cookies()).length, 0);
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
  await question.getByText(/Approved.* by ana/).first().waitFor();
  const result = await call;
  assert.equal(result.status, "ok", JSON.stringify(result));
  assert.ok(existsSync(join(site.work, "made")));
  await until("the title is plain again", async () => !(await page.title()).startsWith("("));
}

export async function denying_by_keyboard_tells_the_agent_why(browser, site) {
  const page = await browser.window(site);
  await logIn(page, site.tokens.ana);
  const agent = await new Agent(site).greet();
  const call = agent.call("execute_process", touch("made"));
  const second = agent.call("execute_process", touch("other"));
  await card(page, "touch other").waitFor();
  // Without a question that has the focus, keys decide nothing.
  await page.keyboard.press("a");
  await page.keyboard.press("Enter");
  await page.keyboard.press("d");
  await page.keyboard.press("Enter");
  assert.equal(await page.locator(".card[data-settled]").count(), 0);
  await page.keyboard.press("j");
  const focused = page.locator(".card:focus");
  const what = (await focused.locator(".line").textContent()).trim();
  await page.waitForTimeout(900);
  // One key does not decide either: it leads to the button.
  await page.keyboard.press("a");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Approve");
  await page.keyboard.press("Escape");
  await page.keyboard.press("d");
  await page.keyboard.type("not on a Friday");
  await page.keyboard.press("Enter");
  await card(page, what).getByText(/Denied by ana.*not on a Friday/).waitFor();
  const [denied, open] = what === "touch made" ? [call, second] : [second, call];
  const result = await denied;
  assert.equal(result.error_code, "APPROVAL_DENIED", JSON.stringify(result));
  assert.match(result.error_message, /not on a Friday/);
  // The next one, by keys alone.
  await page.keyboard.press("j");
  await page.keyboard.press("k");
  const rest = page.locator(".card:not([data-settled])");
  for (let step = 0; step < 3 && !(await rest.evaluate((it) => it === document.activeElement)); step++) {
    await page.keyboard.press("j");
  }
  await page.keyboard.press("a");
  await page.keyboard.press("Enter");
  assert.equal((await open).status, "ok");
  await page.keyboard.press("?");
  await page.getByRole("heading", { name: "Keys" }).waitFor();
  await page.keyboard.press("Escape");
}

export async function a_second_browser_sees_the_decision_live(browser, site) {
  const [ana, ben] = [await browser.window(site), await browser.window(site)];
  await logIn(ana, site.tokens.ana);
  await logIn(ben, site.tokens.ben);
  const agent = await new Agent(site).greet();
  const call = agent.call("execute_process", touch("made"));
  await card(ana, "touch made").waitFor();
  await card(ben, "touch made").waitFor();
  await ben.waitForTimeout(900);
  // Ben's page no longer hears anything, so he decides too late.
  await ben.context().setOffline(true);
  await ana.waitForTimeout(900);
  await card(ana, "touch made").getByPlaceholder("Reason").fill("no");
  await card(ana, "touch made").getByRole("button", { name: "Deny", exact: true }).click();
  await card(ana, "touch made").getByText(/Denied by ana/).waitFor();
  await ben.context().setOffline(false);
  const late = await ben.evaluate(async () => {
    const form = document.querySelector("[data-decide]");
    const body = new URLSearchParams({ decision: "approve" });
    const id = document.querySelector(".card").dataset.id;
    const answer = await fetch(form?.action ?? `/approvals/${id}/decision`, { method: "POST", headers: { accept: "application/json" }, body });
    return answer.json();
  });
  assert.equal(late.said, "already decided: denied by ana: no");
  assert.equal((await call).error_code, "APPROVAL_DENIED");
  await card(ben, "touch made").getByText(/Denied by ana.*no/).waitFor();
  assert.equal(await card(ben, "touch made").getByRole("button", { name: "Approve" }).count(), 0);
}

export async function a_decision_of_somebody_who_is_logged_out_leads_to_the_login(browser, site) {
  const page = await browser.window(site);
  // It hears nothing, so it does not know that its login has ended.
  await page.route("**/live?*", () => {});
  await logIn(page, site.tokens.ana);
  const agent = await new Agent(site).greet();
  const call = agent.call("execute_process", touch("made"));
  await until("the question is there", async () => {
    await page.reload();
    return (await card(page, "touch made").count()) === 1;
  });
  const other = await page.context().newPage();
  await other.goto("/");
  await other.getByRole("button", { name: "Log out" }).click();
  await other.getByLabel("Token or login code").waitFor();
  await card(page, "touch made").getByRole("button", { name: "Approve" }).click();
  await page.getByLabel("Token or login code").fill(site.tokens.ana);
  await page.keyboard.press("Enter");
  await card(page, "touch made").getByRole("button", { name: "Deny", exact: true }).click();
  assert.equal((await call).error_code, "APPROVAL_DENIED");
}

export async function activity_brings_what_happened_while_it_was_fetching(browser, site) {
  const page = await browser.window(site);
  await logIn(page, site.tokens.ana);
  await page.goto("/activity");
  await page.evaluate(() => window.addEventListener("news:record", (event) => (window.told = event.detail.seq)));
  // The first answer is made and kept back, so that it knows nothing of what comes next.
  let letGo;
  await page.route("**/activity/news?*", async (route) => {
    const response = await route.fetch();
    if (!letGo) await new Promise((resolve) => (letGo = resolve));
    await route.fulfill({ response });
  });
  const agent = await new Agent(site).greet();
  await until("the page fetches", () => letGo);
  const told = await page.evaluate(() => window.told ?? 0);
  assert.equal((await agent.call("execute_process", { file: "ls", args: ["-1"] })).status, "ok");
  // The last thing that the page is told of while it waits.
  await until("it is told of the call", async () => (await page.evaluate(() => window.told ?? 0)) > told);
  await page.waitForTimeout(1000);
  letGo();
  await page.locator("li.told", { hasText: "ls -1" }).first().waitFor();
}

export async function a_failed_login_is_in_the_record(browser, site) {
  const page = await browser.window(site);
  await page.goto("/login");
  for (const guess of ["cs_operator_guess", "cs_login_guess"]) {
    await page.getByLabel("Token or login code").fill(guess);
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByRole("alert").waitFor();
  }
  await logIn(page, site.tokens.ana);
  await page.goto("/record?type=auth.refused");
  assert.equal(await page.locator("tbody tr").count(), 1, "the first at once, the others together");
  assert.match(await page.locator("tbody").textContent(), /UNAUTHENTICATED/);
  await page.goto("/record?type=auth.login");
  assert.match(await page.locator("tbody").textContent(), /ana/);
}

export async function a_question_that_has_just_appeared_takes_no_click(browser, site) {
  const page = await browser.window(site);
  await logIn(page, site.tokens.ana);
  await page.evaluate(() => {
    const seen = new MutationObserver(() => {
      const button = document.querySelector(".card button.approve");
      if (!button) return;
      seen.disconnect();
      button.click();
    });
    seen.observe(document.querySelector("[data-cards]"), { childList: true });
  });
  const agent = await new Agent(site).greet();
  agent.call("execute_process", touch("made"));
  await card(page, "touch made").getByText("only just appeared").waitFor();
  assert.equal(await page.locator(".card[data-settled]").count(), 0);
  assert.ok(!existsSync(join(site.work, "made")));
}

export async function allowing_from_now_on_shows_the_rule_first(browser, site) {
  const page = await browser.window(site);
  await logIn(page, site.tokens.ana);
  const agent = await new Agent(site).greet();
  const call = agent.call("execute_process", touch("made"));
  await card(page, "touch made").getByRole("link", { name: "Allow from now on" }).click();
  const rule = page.getByRole("region", { name: "The rule that would be written" });
  await rule.getByText("touch made").first().waitFor();
  await rule.getByText(site.config).first().waitFor();
  assert.ok(!readFileSync(site.config, "utf8").includes("touch"), "nothing is written before it was seen");
  await accessible(page, "the rule");
  await page.getByRole("button", { name: "Write the rule" }).click();
  await page.getByText(/Approved.* by ana/).first().waitFor();
  assert.equal((await call).status, "ok");
  await until("the rule is in the file", () => readFileSync(site.config, "utf8").includes("touch"));
  const again = await agent.call("execute_process", touch("made"));
  assert.equal(again.status, "ok", "nobody is asked again");
  // An approver approves, and writes no rules.
  agent.call("execute_process", touch("other"));
  const ben = await browser.window(site);
  await logIn(ben, site.tokens.ben);
  await card(ben, "touch other").waitFor();
  assert.equal(await ben.getByRole("link", { name: "Allow from now on" }).count(), 0);
  const id = await card(ben, "touch other").getAttribute("data-id");
  await ben.goto(`/approvals/${id}/standing`);
  await ben.getByText("only an operator changes policy").waitFor();
}

const HOSTILE = `<script>window.hit=1</script><img src=x onerror="window.hit=2">'"--><svg/onload=window.hit=3>`;

export async function hostile_text_is_only_text(browser, site) {
  const agent = await new Agent(site).greet(HOSTILE);
  agent.call("execute_command", { command: `touch '${HOSTILE.replaceAll("'", "")}' \u202Etxt.exe p\u0430ypal\u200B`, justification: HOSTILE });
  agent.call("execute_process", { file: "touch", args: [HOSTILE, "javascript:window.hit=4"], env: { NOTE: HOSTILE } });
  const page = await browser.window(site);
  await logIn(page, site.tokens.ana);
  await until("both wait", async () => (await page.locator(".card").count()) === 2);
  const text = await page.locator(".cards").textContent();
  for (const seen of ["<script>window.hit=1</script>", "U+202E", "U+200B"]) assert.ok(text.includes(seen), seen);
  assert.ok(!/[\u202E\u200B]/.test(text), "what cannot be seen is not in the page");
  assert.equal(await page.locator(".foreign[title*='U+0430']").count(), 1);
  await page.getByPlaceholder("Reason").first().fill(HOSTILE);
  await page.waitForTimeout(900);
  await page.getByRole("button", { name: "Deny", exact: true }).first().click();
  await page.getByText(/Denied by ana/).first().waitFor();
  const story = await page.locator(".ids a").first().getAttribute("href");
  const places = ["/", "/activity?steps=1", "/record", "/record?kind=command", `/record?text=${encodeURIComponent(HOSTILE)}`, "/sessions", `/policy?command=${encodeURIComponent(HOSTILE)}&tool=${encodeURIComponent(HOSTILE)}`, "/numbers", story, `/calls/${encodeURIComponent(HOSTILE)}`, `/login?next=${encodeURIComponent(`javascript:${HOSTILE}`)}`];
  for (const place of places) {
    await page.goto(place);
    assert.equal(await page.evaluate(() => globalThis.hit), undefined, place);
    assert.equal(await page.locator("main script, main img, main [onerror], main [onload]").count(), 0, place);
  }
  await page.goto("/sessions");
  assert.ok((await page.locator("main").textContent()).includes("<script>window.hit=1</script>"));
}

export async function pages_of_other_sites_decide_nothing(browser, site) {
  const page = await browser.window(site);
  await logIn(page, site.tokens.ana);
  const agent = await new Agent(site).greet();
  agent.call("execute_process", touch("made"));
  await card(page, "touch made").waitFor();
  const id = await card(page, "touch made").getAttribute("data-id");
  const [{ name, value }] = await page.context().cookies();
  const send = (origin, path, body) =>
    fetch(site.url + path, {
      method: "POST",
      headers: { cookie: `${name}=${value}`, "content-type": "application/x-www-form-urlencoded", ...(origin && { origin }) },
      body,
      redirect: "manual",
    });
  const other = site.url.replace(/:\d+$/, ":1");
  for (const origin of ["https://evil.example", "null", other, undefined]) {
    assert.equal((await send(origin, `/approvals/${id}/decision`, "decision=approve")).status, 403, `${origin}`);
    assert.equal((await send(origin, "/logout", "")).status, 403);
    assert.equal((await send(origin, "/login", `token=${site.tokens.ana}`)).status, 403);
  }
  await page.goto("/");
  assert.equal(await page.locator(".card:not([data-settled])").count(), 1, "it still waits");
  // Nobody may put it into a frame.
  const { headers } = await fetch(`${site.url}/login`);
  assert.match(headers.get("content-security-policy"), /frame-ancestors 'none'/);
  assert.equal(headers.get("x-frame-options"), "DENY");
  // The same word from a page of ours counts.
  assert.equal((await send(site.url, `/approvals/${id}/decision`, "decision=approve")).status, 303);
}

export async function whoever_may_not_decide_has_no_buttons(browser, site) {
  const olga = await new Agent(site, site.tokens.ana).greet();
  olga.call("execute_process", touch("mine"));
  const [vic, ana] = [await browser.window(site), await browser.window(site)];
  await logIn(vic, site.tokens.vic);
  await logIn(ana, site.tokens.ana);
  await card(vic, "touch mine").getByText("does not decide").waitFor();
  await card(ana, "touch mine").getByText("You asked for this yourself").waitFor();
  for (const page of [vic, ana]) {
    assert.equal(await page.getByRole("button", { name: /Approve|Deny/ }).count(), 0);
    const status = await page.evaluate(async () => {
      const id = document.querySelector(".card").dataset.id;
      const body = new URLSearchParams({ decision: "approve" });
      return (await fetch(`/approvals/${id}/decision`, { method: "POST", body })).status;
    });
    assert.equal(status, 403, "nor does asking the server help");
  }
}

export async function it_works_without_scripts(browser, site) {
  const page = await browser.window(site, { javaScriptEnabled: false });
  const agent = await new Agent(site).greet();
  const call = agent.call("execute_process", touch("made"));
  await logIn(page, site.tokens.ana);
  await until("the question is there", async () => {
    await page.goto("/");
    return (await page.locator(".card").count()) === 1;
  });
  // Enter in the field of the reason must not say yes.
  await page.getByPlaceholder("Reason").fill("because");
  await page.getByPlaceholder("Reason").press("Enter");
  assert.equal(new URL(page.url()).pathname, "/");
  await page.getByRole("button", { name: "Approve", exact: true }).click();
  await page.getByText(/Approved.* by ana/).first().waitFor();
  assert.equal((await call).status, "ok");
}

const PLACES = ["/", "/activity?steps=1", "/jobs", "/runs", "/record", "/record?kind=command", "/sessions", "/policy?command=git+status", "/numbers?period=hour"];

export async function every_place_is_accessible_and_fits_a_phone(browser, site) {
  const agent = await new Agent(site).greet("a-client-with-quite-a-long-name");
  await agent.call("execute_command", { command: "pwd" });
  agent.call("execute_command", { command: `touch ${"long".repeat(60)} \u202E | cat`, justification: "because ".repeat(30) });
  for (const [scheme, width] of [["light", 1280], ["dark", 320]]) {
    const page = await browser.window(site, { viewport: { width, height: 800 }, colorScheme: scheme });
    await page.goto("/login");
    await accessible(page, `/login in ${scheme}`);
    await fits(page, `/login at ${width}`);
    await logIn(page, site.tokens.ana);
    await until("a question waits", async () => (await page.locator(".card").count()) === 1);
    const story = await page.locator(".ids a").first().getAttribute("href");
    const one = await page.locator(".ids a").last().getAttribute("href");
    for (const place of [...PLACES, story, one, `${one}/standing`]) {
      await page.goto(place);
      await page.evaluate(() => document.querySelectorAll("details").forEach((part) => (part.open = true)));
      await accessible(page, `${place} in ${scheme}`);
      await fits(page, `${place} at ${width}`);
    }
    const paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const lightness = Number(/\d+/.exec(paper)[0]);
    assert.ok(scheme === "dark" ? lightness < 60 : lightness > 200, `${scheme}: ${paper}`);
    // The button goes over what the system says, and is remembered.
    const other = scheme === "dark" ? "Light" : "Dark";
    const toggle = page.locator("[data-theme-toggle]");
    while ((await toggle.textContent()).trim() !== other) await toggle.click();
    await page.reload();
    const now = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    assert.notEqual(now, paper);
  }
}

export async function the_record_tells_the_story_and_proves_itself(browser, site) {
  const page = await browser.window(site);
  await logIn(page, site.tokens.ana, "/activity");
  const agent = await new Agent(site).greet("storyteller");
  const done = await agent.call("execute_command", { command: "echo once upon a time" });
  assert.equal(done.status, "ok", JSON.stringify(done));
  // It comes without a reload.
  const line = page.locator(".told", { hasText: "echo once upon a time" }).filter({ hasText: "Done" });
  await line.waitFor();
  await line.getByRole("link").click();
  await page.getByRole("heading", { name: "Story of a call" }).waitFor();
  const story = await page.locator("main").textContent();
  for (const part of ["once upon a time", "streamable-http", "allow", "Exit code", "landlock", "command.received", "command.completed"]) {
    assert.ok(story.includes(part), `${part} is not in the story`);
  }
  await page.goto("/record?kind=command&status=ok&text=upon");
  assert.equal(await page.locator("tbody tr").count(), 1);
  await page.goto("/record?type=session.initialized");
  assert.equal(await page.locator("tbody tr").count(), 1);
  await page.goto("/record?text=no-such-thing");
  await page.getByText("Nothing found").waitFor();
  await page.goto("/record?from=yesterday");
  await page.getByRole("alert").waitFor();
  await page.goto("/record");
  await page.getByRole("button", { name: "Verify now" }).click();
  await page.getByRole("status").filter({ hasText: "Sound" }).waitFor();
  const [head] = await page.evaluate(async () => (await (await fetch("/api/v1/audit/export")).text()).split("\n"));
  assert.ok(JSON.parse(head).public_key, `an export begins with the key: ${head}`);
  await page.goto("/sessions");
  await page.getByText("storyteller").waitFor();
  await page.goto("/policy");
  await page.getByLabel(/Command, or arguments/).fill("git status; rm -rf x");
  await page.getByRole("button", { name: "Explain" }).click();
  await page.locator(".answer").getByText("ask", { exact: true }).first().waitFor();
  await page.goto("/numbers?period=hour");
  assert.match(await page.locator(".tiles").textContent(), /Commands1/);
  assert.ok((await page.locator("svg.plot rect").count()) > 0);
}

const startJob = async (agent, prompt) => {
  const accepted = await agent.call("start-task", { agent: "painter", prompt });
  assert.equal(accepted.status, "accepted", JSON.stringify(accepted));
  return accepted.jobId;
};

export async function a_job_is_followed_from_its_task_to_its_end(browser, site) {
  const page = await browser.window(site, { viewport: { width: 1280, height: 900 } });
  await logIn(page, site.tokens.ana, "/jobs");
  await page.getByText("No jobs here").waitFor();
  const agent = await new Agent(site, site.tokens.agent).greet();
  const id = await startJob(agent, `Fix the total of the cart ${HOSTILE}`);
  // It comes without a reload, and says that it waits.
  await page.locator("tbody tr").filter({ hasText: "waits for a person" }).waitFor();
  await page.locator("tbody tr a").click();
  await page.getByRole("heading", { name: "Job", exact: true }).waitFor();
  const talk = page.locator("[data-talk]");
  await talk.getByText("I will look at the tests first").waitFor();
  await talk.locator(".entry", { hasText: "Command failed" }).getByText("What it said").click();
  await talk.getByText("0.30000000000000004").waitFor();
  await talk.locator(".entry", { hasText: "Edit done" }).getByText("src/cart.rs").first().click();
  assert.equal(await talk.locator(".diff .added").count(), 4);
  assert.equal(await page.locator("[data-diff] .diff .removed").count(), 3);
  assert.match(await page.locator(".task").textContent(), /<script>window.hit=1<\/script>/);
  assert.equal(await page.evaluate(() => globalThis.hit), undefined);
  for (const [scheme, width] of [["light", 1280], ["dark", 320]]) {
    const other = await browser.window(site, { viewport: { width, height: 900 }, colorScheme: scheme });
    await logIn(other, site.tokens.vic, `/jobs/${id}?steps=1`);
    await other.locator("[data-talk] li").first().waitFor();
    await other.evaluate(() => document.querySelectorAll("details").forEach((part) => (part.open = true)));
    for (const place of [`/jobs/${id}?steps=1`, "/jobs"]) {
      if (place === "/jobs") await other.goto(place);
      await accessible(other, `${place} in ${scheme}`);
      await fits(other, `${place} at ${width}`);
    }
  }
  // The question is one click away; its answer is seen on the page that stayed open.
  const asked = await page.context().newPage();
  await asked.goto(`/jobs/${id}`);
  await asked.locator(".notice").getByRole("link", { name: /git commit/ }).click();
  await asked.waitForTimeout(900);
  await asked.getByRole("button", { name: "Approve", exact: true }).click();
  await asked.getByText(/Approved.* by ana/).first().waitFor();
  await talk.getByText("Done: prices are added up in cents").waitFor();
  const tiles = page.locator(".tiles");
  await tiles.getByText("done", { exact: true }).waitFor();
  await tiles.getByText("19,515").waitFor();
  assert.ok(await page.getByRole("button", { name: "Interrupt" }).isHidden(), "what has ended is not interrupted");
  await page.getByRole("link", { name: "In the record" }).click();
  await page.getByRole("heading", { name: "Story of a call" }).waitFor();
  assert.match(await page.locator("main").textContent(), /job\.completed/);
}

export async function operators_speak_to_agents_and_call_them_back_and_nobody_else_does(browser, site) {
  const agent = await new Agent(site, site.tokens.agent).greet();
  const id = await startJob(agent, "wait for me");
  const [ana, vic] = [await browser.window(site), await browser.window(site)];
  await logIn(ana, site.tokens.ana, `/jobs/${id}`);
  await logIn(vic, site.tokens.vic, `/jobs/${id}`);
  await vic.locator("[data-talk]").getByText("I think about it").waitFor();
  assert.equal(await vic.getByRole("button", { name: /Interrupt|Send/ }).count(), 0);
  for (const [act, body] of [["interrupt", ""], ["messages", "message=hello"]]) {
    const status = await vic.evaluate(
      async ([path, body]) => (await fetch(path, { method: "POST", headers: { "content-type": "application/x-www-form-urlencoded" }, body })).status,
      [`/jobs/${id}/${act}`, body],
    );
    assert.equal(status, 403, act);
  }
  // A page of another site has no say either.
  const [{ name, value }] = await ana.context().cookies();
  const headers = { cookie: `${name}=${value}`, origin: "https://evil.example", "content-type": "application/x-www-form-urlencoded" };
  const forged = await fetch(`${site.url}/jobs/${id}/interrupt`, { method: "POST", headers, body: "", redirect: "manual" });
  assert.equal(forged.status, 403);
  await ana.getByRole("button", { name: "Interrupt" }).click();
  // Both pages see it, one of them without having done anything.
  await vic.locator(".tiles").getByText("interrupted", { exact: true }).waitFor();
  await ana.locator(".tiles").getByText("interrupted", { exact: true }).waitFor();
  await ana.getByLabel("Say something to the agent").fill("take care");
  await ana.getByRole("button", { name: "Send" }).click();
  await ana.waitForURL((url) => !url.pathname.endsWith(id));
  await ana.locator("[data-talk]").getByText("You said: take care").waitFor();
}

async function startRun(site, order) {
  const started = await fetch(`${site.url}/api/v1/runs`, {
    method: "POST",
    headers: { authorization: `Bearer ${site.tokens.ana}`, "content-type": "application/json" },
    body: JSON.stringify(order),
  });
  const said = await started.json();
  assert.equal(started.status, 202, JSON.stringify(said));
  return said.run_id;
}

export async function a_run_is_traced_from_its_issue_to_the_job_that_does_it(browser, site) {
  const page = await browser.window(site, { viewport: { width: 1280, height: 900 } });
  await logIn(page, site.tokens.ana, "/runs");
  await page.getByText("No run waits or works").waitFor();
  const order = {
    repository: "example/shop", issue_number: 12, label: "run:dev", agent_key: "painter",
    title: `Fix the total ${HOSTILE}`, instructions: "Fix the total of the cart: 0.1 + 0.2 must be 0.3.",
  };
  await startRun(site, order);
  // The page hears of it by itself.
  await page.locator("tbody tr").filter({ hasText: "example/shop#12" }).waitFor();
  await page.locator("tbody tr a").first().click();
  await page.getByRole("heading", { name: /Fix the total/ }).waitFor();
  const issue = page.getByRole("link", { name: "example/shop#12" });
  assert.equal(await issue.getAttribute("href"), "https://github.com/example/shop/issues/12");
  await page.locator(".timeline").getByText("run.started").first().waitFor();
  assert.match(await page.locator(".timeline").textContent(), /run\.enqueued[^]*run\.started/);
  assert.equal(await page.evaluate(() => globalThis.hit), undefined);
  const address = new URL(page.url()).pathname;
  for (const [scheme, width] of [["light", 1280], ["dark", 320]]) {
    const other = await browser.window(site, { viewport: { width, height: 900 }, colorScheme: scheme });
    await logIn(other, site.tokens.vic, address);
    for (const place of [address, "/runs"]) {
      await other.goto(place);
      await accessible(other, `${place} in ${scheme}`);
      await fits(other, `${place} at ${width}`);
    }
  }
  await page.locator("dd", { hasText: "does its work" }).getByRole("link").click();
  await page.getByRole("heading", { name: "Job", exact: true }).waitFor();
}

export async function a_run_is_called_back_by_an_operator_and_every_open_page_sees_it(browser, site) {
  // Its agent comes from outside, so it goes on until somebody says otherwise.
  const run = await startRun(site, { repository: "example/shop", issue_number: 13, label: "run:qa", agent_key: "visitor" });
  const address = `/runs/${run}`;
  const page = await browser.window(site, { viewport: { width: 1280, height: 900 } });
  await logIn(page, site.tokens.ana, "/runs");
  await page.locator("tbody tr").filter({ hasText: "example/shop#13" }).filter({ hasText: "running" }).waitFor();
  const vic = await browser.window(site, { viewport: { width: 1280, height: 900 } });
  await logIn(vic, site.tokens.vic, address);
  await vic.locator("[data-standing]").getByText("running", { exact: true }).waitFor();
  assert.equal(await vic.getByRole("button", { name: "Cancel" }).count(), 0);
  const forbidden = await vic.evaluate(async (path) => (await fetch(path, { method: "POST" })).status, `${address}/cancel`);
  assert.equal(forbidden, 403);
  await page.goto(address);
  await page.getByRole("button", { name: "Cancel" }).click();
  // Both pages see it, one of them without having done anything.
  for (const either of [page, vic]) {
    await either.locator("[data-standing]").getByText("cancelled", { exact: true }).waitFor();
    await either.locator(".timeline").getByText("run.canceled").first().waitFor();
  }
  assert.equal(await page.getByRole("button", { name: "Cancel" }).isVisible(), false);
}
