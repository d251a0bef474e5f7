// Takes schemas of the protocol out of the conformance suite, which carries them inside its bundle.
//
//     node schemas.mjs BUNDLE FOLDER REVISION...

import { readFileSync, writeFileSync } from "node:fs";

const [bundlePath, folder, ...revisions] = process.argv.slice(2);
const bundle = readFileSync(bundlePath, "utf8");

for (const revision of revisions) {
  const variable = bundle.match(new RegExp(`"${revision}":([\\w$]+),`))?.[1];
  const start = bundle.search(new RegExp(`[ ,]${variable?.replaceAll("$", "\\$")}=\\{`));
  if (!variable || start < 0) {
    throw new Error(`${bundlePath} has no schema of ${revision}`);
  }
  const literal = objectAt(bundle, bundle.indexOf("{", start));
  const schema = Function(`"use strict"; return (${literal});`)();
  if (!schema.$schema || !(schema.definitions ?? schema.$defs)?.JSONRPCMessage) {
    throw new Error(`what ${bundlePath} has for ${revision} is no schema of the protocol`);
  }
  writeFileSync(`${folder}/${revision}.json`, JSON.stringify(schema, null, 1));
}

/** The text of the object literal that begins at `start`. */
function objectAt(text, start) {
  let depth = 0;
  let quote = "";
  for (let at = start; at < text.length; at++) {
    const character = text[at];
    if (quote) {
      if (character === "\\") at++;
      else if (character === quote) quote = "";
    } else if ("\"'`".includes(character)) quote = character;
    else if (character === "{") depth++;
    else if (character === "}" && --depth === 0) return text.slice(start, at + 1);
  }
  throw new Error("the object does not end");
}
