// A job while it is open: how it stands is replaced, what is new is added, what went on is put in its place.
import { announce, tick } from "/assets/console.js";

const RETRY_MS = 2000;
const place = document.querySelector("[data-job]");
let busy = false;
let again = false;

/** Puts entries where they belong, and keeps the reader at the end who is there. */
function add(fresh) {
  const talk = place.querySelector("[data-talk]");
  const isAtEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 80;
  for (const entry of fresh) {
    const known = talk.querySelector(`[data-key="${entry.dataset.key}"]`);
    if (!known) {
      talk.append(entry);
      continue;
    }
    const open = [...known.querySelectorAll("details")].map((part) => part.open);
    [...entry.querySelectorAll("details")].forEach((part, index) => (part.open = open[index] ?? part.open));
    known.replaceWith(entry);
  }
  place.querySelector("[data-silent]").hidden = talk.children.length > 0;
  if (fresh.length && isAtEnd && talk.getBoundingClientRect().bottom > innerHeight) scrollTo(0, document.documentElement.scrollHeight);
}

function stand(now) {
  const before = place.querySelector("[data-standing]");
  const state = (part) => part.querySelector(".tiles .state").textContent.trim();
  if (state(before) !== state(now)) announce(`The job: ${state(now)}`);
  before.replaceWith(now);
  const interrupt = document.querySelector("[data-interrupt]");
  if (interrupt) interrupt.hidden = now.dataset.open !== "true";
  const speak = document.querySelector("[data-speak]");
  if (speak) speak.hidden = now.dataset.canTalk !== "true";
}

async function bring() {
  if (busy) return void (again = true);
  busy = true;
  again = false;
  try {
    const query = new URLSearchParams(location.search);
    query.set("after", place.querySelector("[data-standing]").dataset.head);
    const answer = await fetch(`/jobs/${place.dataset.job}/news?${query}`);
    if (!answer.ok) throw new Error(`${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    add([...page.querySelectorAll("[data-talk] > li")]);
    stand(page.querySelector("[data-standing]"));
    place.querySelector("[data-writing]").replaceWith(page.querySelector("[data-writing]"));
    const diff = place.querySelector("[data-diff]");
    const next = page.querySelector("[data-diff]");
    if (diff.textContent !== next.textContent) diff.replaceWith(next);
    tick(place);
  } catch {
    // Nobody tells twice, so it is tried again.
    setTimeout(bring, RETRY_MS);
  } finally {
    busy = false;
    if (again) bring();
  }
}

window.addEventListener("news:job", bring);
