// The list while it is open: fetched again when the record tells of something.
import { tick } from "/assets/console.js";

const RETRY_MS = 2000;
const place = document.querySelector("[data-jobs]");
let busy = false;
let again = false;

async function bring() {
  if (busy) return void (again = true);
  busy = true;
  again = false;
  try {
    const answer = await fetch(`/jobs/news${location.search}`);
    if (!answer.ok) throw new Error(`${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    // Whoever reads with the keyboard keeps the place.
    if (place.contains(document.activeElement)) return void setTimeout(bring, RETRY_MS);
    place.replaceChildren(...page.body.childNodes);
    tick(place);
  } catch {
    // Nobody tells twice, so it is tried again.
    setTimeout(bring, RETRY_MS);
  } finally {
    busy = false;
    if (again) bring();
  }
}

window.addEventListener("news:record", bring);
