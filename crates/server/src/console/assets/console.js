// What every page does: the theme, times that tick, news from the server.

const storageKey = "countersign-theme";
const root = document.documentElement;

function storeTheme(theme) {
  try {
    theme ? localStorage.setItem(storageKey, theme) : localStorage.removeItem(storageKey);
  } catch {
    // It holds for this page then.
  }
}

const toggle = document.querySelector("[data-theme-toggle]");
if (toggle) {
  const themes = ["", "light", "dark"];
  const names = { "": "System", light: "Light", dark: "Dark" };
  const show = () => {
    toggle.querySelector("[data-theme-name]").textContent = names[root.dataset.theme ?? ""];
  };
  toggle.addEventListener("click", () => {
    const next = themes[(themes.indexOf(root.dataset.theme ?? "") + 1) % themes.length];
    if (next) root.dataset.theme = next;
    else delete root.dataset.theme;
    storeTheme(next);
    show();
  });
  show();
  toggle.hidden = false;
}

// A login code that was opened in a browser that is logged in already.
if (location.hash.startsWith("#token=")) location.replace(`/login${location.hash}`);

/** Says something to whoever hears the page. */
export function announce(text) {
  const place = document.querySelector("[data-announce]");
  place.textContent = "";
  requestAnimationFrame(() => (place.textContent = text));
}

function short(seconds) {
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

// The server's clock decides; a browser's may be off.
const served = Date.parse(document.querySelector("[data-now]")?.dataset.now ?? "");
const drift = Number.isNaN(served) ? 0 : served - Date.now();

export function tick(within = document) {
  const now = Date.now() + drift;
  for (const time of within.querySelectorAll("time[datetime]")) {
    const at = Date.parse(time.dateTime);
    if (Number.isNaN(at)) continue;
    const seconds = Math.floor(Math.abs(at - now) / 1000);
    const ahead = at > now;
    const minutes = Math.floor(seconds / 60);
    const counted = ahead && "deadline" in time.dataset && seconds < 3600;
    const text = counted && minutes ? `${minutes} min ${seconds % 60} s` : short(seconds);
    const said = ahead ? `in ${text}` : `${text} ago`;
    if (time.textContent !== said) time.textContent = said;
    if (!time.title) time.title = new Date(at).toISOString();
    time.classList.toggle("soon", ahead && "deadline" in time.dataset && seconds < 60);
  }
}
setInterval(tick, 1000);
tick();

/** News, as events of the window: `news:queue`. */
const name = document.title.replace(/^\(\d+\) /, "");
function showWaiting(waiting) {
  document.title = waiting ? `(${waiting}) ${name}` : name;
  for (const badge of document.querySelectorAll("[data-waiting]")) {
    badge.firstChild.nodeValue = waiting;
    badge.hidden = !waiting;
  }
}

const offline = document.querySelector("[data-offline]");
let stream;
let silence;

/** A page that hears nothing says so, and asks to log in again where that is why. */
function lost() {
  silence ??= setTimeout(() => (offline.hidden = false), 3000);
  if (stream.readyState !== EventSource.CLOSED) return;
  // What was refused does not come back by itself.
  setTimeout(async () => {
    const answer = await fetch("/queue", { method: "HEAD" }).catch(() => undefined);
    if (answer?.status === 401) location.reload();
    else listen();
  }, 3000);
}

function heard() {
  clearTimeout(silence);
  silence = undefined;
  offline.hidden = true;
}

function listen() {
  const wanted = new URLSearchParams();
  if (document.querySelector("[data-record-news]")) wanted.set("record", "1");
  const job = document.querySelector("[data-job]");
  if (job) wanted.set("job", job.dataset.job);
  stream = new EventSource(`/live?${wanted}`);
  stream.addEventListener("open", heard);
  stream.addEventListener("queue", (event) => {
    const { waiting } = JSON.parse(event.data);
    showWaiting(waiting);
    window.dispatchEvent(new CustomEvent("news:queue", { detail: { waiting } }));
  });
  stream.addEventListener("record", (event) => {
    window.dispatchEvent(new CustomEvent("news:record", { detail: JSON.parse(event.data) }));
  });
  stream.addEventListener("job", (event) => {
    window.dispatchEvent(new CustomEvent("news:job", { detail: JSON.parse(event.data) }));
  });
  stream.addEventListener("gone", () => {
    stream.close();
    location.reload();
  });
  stream.addEventListener("error", lost);
}
listen();
addEventListener("pagehide", () => stream.close());
addEventListener("pageshow", (event) => event.persisted && listen());
