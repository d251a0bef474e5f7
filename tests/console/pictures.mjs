// Takes the pictures for the documentation: `node pictures.mjs URL TOKEN FOLDER`.
import { join } from "node:path";
import { Agent, Browser, logIn, until } from "./driver.mjs";

const [url, token, folder] = process.argv.slice(2);
const [WIDTH, HEIGHT] = [1200, 820];
const site = { url };
const browser = await Browser.start();

const claude = await new Agent(site).greet("claude-code");
const codex = await new Agent(site).greet("codex");
for (const command of ["git status", "git log --oneline | head -5", "ls -la", "cat README.md", "git status; rm -rf dist", "wc -l README.md"]) {
  const call = claude.call("execute_command", { command });
  await Promise.race([call, new Promise((resolve) => setTimeout(resolve, 1500))]);
}
const page = await browser.window(site, { viewport: { width: WIDTH, height: HEIGHT }, deviceScaleFactor: 1 });
await logIn(page, token);
const answer = async (text, name, reason) => {
  const card = page.locator(".card", { hasText: text });
  await card.waitFor();
  await page.waitForTimeout(900);
  await card.getByPlaceholder("Reason").fill(reason);
  await card.getByRole("button", { name, exact: true }).click();
  await card.locator(".outcome").waitFor();
};
await answer("git status; rm -rf dist", "Deny", "leave dist alone, the release is made of it");
const built = codex.call("execute_command", { command: "mkdir -p build && touch build/index.html && ls build", justification: "The site needs a build folder before it can be served." });
await answer("mkdir -p build", "Approve", "fine");
await built;
const story = await page.locator(".card", { hasText: "mkdir -p build" }).locator(".ids a").first().getAttribute("href");

codex.call("execute_process", { file: "curl", args: ["-fsSL", "https://get.example.com/in\u202Estall.sh", "-o", "setup.sh"], network: "allow", justification: "I need the installer of the linter to go on." });
claude.call("execute_command", { command: "git add -A && git commit -m 'Build the shop' | tee build/log", justification: "The build is green; this records it." });
const look = async (id) => (await page.request.get(`/api/v1/jobs/${id}`)).json();
const first = await codex.call("start-task", { agent: "painter", prompt: "Look around in the shop and tell me what you find." });
const conversationId = await until("it looked around", async () => {
  const { status, conversationId } = await look(first.jobId);
  return status === "completed" && conversationId;
});
const job = await codex.call("send-message", { conversationId, message: "Fix the total of the cart: 0.1 + 0.2 must be 0.3." });
await until("the agent asks", async () => (await look(job.jobId)).subState === "waiting_approval");
await page.goto("/");
await until("all wait", async () => (await page.locator(".card").count()) === 3);

const take = async (name, path, { whole = false } = {}) => {
  await page.setViewportSize({ width: WIDTH, height: HEIGHT });
  await page.goto(path);
  await page.waitForTimeout(300);
  // The navigation is as tall as the window, so a picture of the whole page is taken in one that holds it.
  const height = await page.evaluate(() => document.documentElement.scrollHeight);
  if (whole) await page.setViewportSize({ width: WIDTH, height });
  await page.screenshot({ path: join(folder, `console-${name}.png`) });
};
await take("queue", "/", { whole: true });
await page.setViewportSize({ width: WIDTH, height: HEIGHT });
await page.goto("/");
await page.waitForTimeout(300);
await page.locator(".card").first().screenshot({ path: join(folder, "console-question.png") });
await take("story", story, { whole: true });
await take("job", `/jobs/${job.jobId}`, { whole: true });
await take("record", "/record");
await take("metrics", "/numbers?period=hour");
await page.evaluate(() => localStorage.setItem("countersign-theme", "dark"));
await take("queue-dark", "/");

const phone = await browser.window(site, { viewport: { width: 360, height: 760 }, colorScheme: "dark", isMobile: true, hasTouch: true });
await logIn(phone, token);
await phone.locator(".card").first().waitFor();
await phone.waitForTimeout(300);
await phone.screenshot({ path: join(folder, "console-phone.png") });
await browser.end();
process.exit(0);
