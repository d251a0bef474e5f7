// Runs one case: `node run.mjs CASE SITE`, where SITE is JSON: the address, tokens, a login code.
import * as cases from "./cases.mjs";
import { Browser } from "./driver.mjs";

const [name, site] = process.argv.slice(2);
const browser = await Browser.start();
let failed;
try {
  await cases[name](browser, JSON.parse(site));
} catch (error) {
  failed = error;
}
try {
  await browser.end();
} catch (error) {
  failed = failed ?? error;
  if (failed !== error) console.error(error.message);
}
if (failed) {
  console.error(failed.stack ?? failed);
  process.exit(1);
}
process.exit(0);
