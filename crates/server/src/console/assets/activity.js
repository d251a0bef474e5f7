// The feed while it is open: new lines come in at the top, unless it is paused.
import { announce, tick } from "/assets/console.js";

const LINES_KEPT = 300;
const RETRY_MS = 2000;
const feed = document.querySelector("[data-feed]");
const pause = document.querySelector("[data-pause]");
const paused = document.querySelector("[data-paused]");
let isPaused = false;
let busy = false;
let again = false;

async function bring() {
  if (isPaused) return;
  if (busy) return void (again = true);
  busy = true;
  again = false;
  try {
    const head = feed.querySelector("[data-head]");
    const query = new URLSearchParams(location.search);
    query.set("after", head.dataset.head);
    const answer = await fetch(`/activity/news?${query}`);
    if (!answer.ok) throw new Error(`${answer.status}`);
    const page = new DOMParser().parseFromString(`<ol>${await answer.text()}</ol>`, "text/html");
    const fresh = [...page.querySelectorAll("li.told")];
    head.dataset.head = page.querySelector("[data-head]").dataset.head;
    head.after(...fresh);
    tick(feed);
    if (fresh.length) document.querySelector("[data-nothing]")?.remove();
    for (const old of [...feed.querySelectorAll("li.told")].slice(LINES_KEPT)) old.remove();
  } catch {
    // Nobody tells twice, so it is tried again.
    setTimeout(bring, RETRY_MS);
  } finally {
    busy = false;
    if (again) bring();
  }
}

function setPaused(now) {
  isPaused = now;
  pause.setAttribute("aria-pressed", String(now));
  pause.textContent = now ? "Go on" : "Pause";
  paused.hidden = !now;
  announce(now ? "Paused" : "Live again");
  if (!now) bring();
}

pause.hidden = false;
pause.addEventListener("click", () => setPaused(!isPaused));
paused.querySelector("[data-go-on]").addEventListener("click", () => setPaused(false));
document.querySelector(".filters").addEventListener("change", (event) => event.currentTarget.requestSubmit());
window.addEventListener("news:record", bring);
