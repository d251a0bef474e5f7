// The list of runs, or one run, while it is open: fetched again when the record tells of something.
import { announce, tick } from "/assets/console.js";

const RETRY_MS = 2000;
const place = document.querySelector("[data-runs]");
let busy = false;
let again = false;

/** How the one run of a page stands; nothing for the list. */
const standing = (part) => part.querySelector("[data-standing] .state")?.textContent.trim();

function put(page) {
  const [before, now] = [standing(place), standing(page)];
  place.replaceChildren(...page.body.childNodes);
  if (now && now !== before) announce(`The run: ${now}`);
  const cancel = document.querySelector("[data-cancel]");
  if (cancel) cancel.hidden = place.querySelector("[data-standing]").dataset.open !== "true";
  tick(place);
}

async function bring() {
  if (busy) return void (again = true);
  busy = true;
  again = false;
  try {
    const answer = await fetch(place.dataset.runs);
    if (!answer.ok) throw new Error(`${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    // Whoever reads with the keyboard keeps the place.
    if (place.contains(document.activeElement)) return void setTimeout(bring, RETRY_MS);
    put(page);
  } catch {
    // Nobody tells twice, so it is tried again.
    setTimeout(bring, RETRY_MS);
  } finally {
    busy = false;
    if (again) bring();
  }
}

window.addEventListener("news:record", bring);
