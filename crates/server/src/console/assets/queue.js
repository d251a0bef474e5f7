// The queue while it is open: news without a reload, keys, and answers without leaving the page.
//
// Nothing moves under a person's hand. New questions come last; what somebody else settled stays in its
// place and says so; a key never decides by itself, it only takes the focus to where Enter does.
import { announce, tick } from "/assets/console.js";

const FRESH_MS = 800;
const RETRY_MS = 2000;
const queue = document.querySelector("[data-queue]");
const cards = queue.querySelector("[data-cards]");
const isSingle = "single" in queue.dataset;
const born = new WeakMap();

const all = () => [...cards.querySelectorAll(".card")];
const open = () => all().filter((card) => !("settled" in card.dataset));
const byId = (id) => document.getElementById(`q-${id}`);

async function fetched(path) {
  const answer = await fetch(path, { headers: { accept: "text/html" } });
  if (!answer.ok) throw new Error(`${answer.status}`);
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

/** Puts the server's newer card in the place of the one that is shown. */
function replace(old, fresh) {
  const hadFocus = old.contains(document.activeElement);
  const reason = old.querySelector("[name=reason]")?.value;
  old.replaceWith(fresh);
  const field = fresh.querySelector("[name=reason]");
  if (field && reason) field.value = reason;
  // Never back onto a button: what it means may have changed.
  if (hadFocus) fresh.focus({ preventScroll: true });
  tick(fresh);
}

async function renew(card) {
  const page = await fetched(`/approvals/${card.dataset.id}/card`);
  const fresh = page.querySelector(".card");
  if (!fresh || fresh.dataset.version === card.dataset.version) return;
  replace(card, fresh);
  const outcome = fresh.querySelector(".outcome")?.textContent.trim();
  if (outcome) announce(outcome);
}

let busy = false;
let again = false;
async function refresh() {
  if (busy) return void (again = true);
  busy = true;
  try {
    if (isSingle) {
      await Promise.all(all().map(renew));
    } else {
      await refreshAll();
    }
  } catch {
    // Nobody tells twice, so it is tried again.
    setTimeout(refresh, RETRY_MS);
  } finally {
    busy = false;
  }
  if (again) {
    again = false;
    await refresh();
  }
}

async function refreshAll() {
  const page = await fetched("/queue");
  const waiting = [...page.querySelectorAll(".card")];
  const ids = new Set(waiting.map((card) => card.dataset.id));
  const added = [];
  for (const fresh of waiting) {
    const known = byId(fresh.dataset.id);
    if (!known) {
      cards.append(fresh);
      born.set(fresh, performance.now());
      added.push(fresh);
    } else if (known.dataset.version !== fresh.dataset.version) {
      replace(known, fresh);
    }
  }
  await Promise.all(open().filter((card) => !ids.has(card.dataset.id)).map(renew));
  queue.querySelector("[data-empty]").hidden = all().length > 0;
  const lately = page.querySelector("[data-lately]");
  queue.querySelector("[data-lately]").replaceWith(lately);
  tick(queue);
  if (added.length) tell(added);
}

function tell(added) {
  const what = added[0].querySelector(".line, .asked")?.textContent.trim() ?? "";
  announce(added.length === 1 ? `A question waits: ${what}` : `${added.length} questions wait`);
  if (document.hidden && "Notification" in window && Notification.permission === "granted") {
    const note = new Notification("Countersign: an agent asks", { body: what.slice(0, 200), tag: "countersign" });
    note.onclick = () => {
      window.focus();
      added[0].focus();
    };
  }
}

window.addEventListener("news:queue", refresh);

// Answers.
cards.addEventListener("submit", async (event) => {
  const form = event.target.closest("[data-decide]");
  if (!form) return;
  event.preventDefault();
  const card = form.closest(".card");
  const said = card.querySelector("[data-said]");
  const since = performance.now() - (born.get(card) ?? -Infinity);
  if (since < FRESH_MS) {
    said.textContent = "This has only just appeared. Look at it first.";
    return;
  }
  const body = new URLSearchParams(new FormData(form, event.submitter));
  for (const button of form.querySelectorAll("button")) button.disabled = true;
  try {
    const answer = await fetch(form.action, { method: "POST", headers: { accept: "application/json" }, body });
    // Whoever is not logged in any more gets a page, and no answer.
    if (answer.status === 401) return location.reload();
    const { said: words } = await answer.json();
    said.textContent = words;
    announce(words);
    if (!answer.ok) throw new Error(words);
    await renew(card);
  } catch (error) {
    said.textContent = said.textContent || `That did not arrive: ${error.message}. Try again.`;
    for (const button of form.querySelectorAll("button[name]")) button.disabled = false;
  }
});

// Keys.
const help = document.querySelector("[data-keys]");
const helpButton = document.querySelector("[data-help]");
if (help && helpButton) {
  helpButton.hidden = false;
  helpButton.addEventListener("click", () => help.showModal());
}

function move(step) {
  const list = all();
  const here = list.indexOf(document.activeElement?.closest?.(".card"));
  const next = here < 0 ? (step > 0 ? 0 : list.length - 1) : Math.min(Math.max(here + step, 0), list.length - 1);
  list[next]?.focus({ preventScroll: true });
  list[next]?.scrollIntoView({ block: "nearest" });
}

const isTyping = (target) => target.closest("input, textarea, select, [contenteditable]");

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help?.open) return;
  const card = event.target.closest(".card");
  if (isTyping(event.target)) {
    if (!card) return;
    if (event.key === "Escape") card.focus();
    if (event.key === "Enter" && event.target.name === "reason") {
      event.preventDefault();
      // The field was come to by way of `d`, or by hand; either way Enter says no, and yes has its own button.
      const deny = card.querySelector("button.deny");
      if (event.isTrusted && !event.repeat) card.querySelector("[data-decide]").requestSubmit(deny);
    }
    return;
  }
  switch (event.key) {
    case "j":
      move(1);
      break;
    case "k":
      move(-1);
      break;
    case "a":
      if (!card) return void announce("Move to a question first, with j and k");
      card.querySelector("button.approve")?.focus();
      break;
    case "d":
      if (!card) return void announce("Move to a question first, with j and k");
      card.querySelector("[name=reason]")?.focus();
      break;
    case "o":
      card?.querySelectorAll("details").forEach((part) => (part.open = true));
      break;
    case "s":
      card?.querySelector(".ids a")?.click();
      break;
    case "Escape":
      card?.focus();
      break;
    case "?":
      help?.showModal();
      break;
    default:
      return;
  }
  event.preventDefault();
});

// Notifications are asked for, never assumed.
const notify = document.querySelector("[data-notify]");
if (notify && "Notification" in window && Notification.permission === "default") {
  notify.hidden = false;
  notify.addEventListener("click", async () => {
    await Notification.requestPermission();
    notify.hidden = true;
  });
}
