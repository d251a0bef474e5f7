// Takes the operations that we use out of GitHub's API description, and the deliveries that we read out of
// its webhook schemas, each with everything it refers to. OpenAPI 3.0 says `nullable` where JSON Schema says
// `null`; that is all that is changed.
//
//   node contract.mjs API WEBHOOKS TO
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [api, webhooks, to] = process.argv.slice(2);

const ISSUE = "/repos/{owner}/{repo}/issues/{issue_number}";
const SECRETS = "/repos/{owner}/{repo}/actions/secrets";
const ENVIRONMENT = "/repos/{owner}/{repo}/environments/{environment_name}";
const OPERATIONS = {
  "/user": ["get"],
  "/repos/{owner}/{repo}/collaborators/{username}/permission": ["get"],
  "/repos/{owner}/{repo}/pulls/{pull_number}/files": ["get"],
  [ISSUE]: ["get"],
  [`${ISSUE}/labels`]: ["get", "post", "put", "delete"],
  [`${ISSUE}/events`]: ["get"],
  [`${ISSUE}/comments`]: ["get", "post"],
  "/repos/{owner}/{repo}/issues/comments/{comment_id}": ["get", "patch"],
  [`${SECRETS}/public-key`]: ["get"],
  [`${SECRETS}/{secret_name}`]: ["get", "put", "delete"],
  [ENVIRONMENT]: ["get"],
  [`${ENVIRONMENT}/secrets/public-key`]: ["get"],
  [`${ENVIRONMENT}/secrets/{secret_name}`]: ["get", "put", "delete"],
};
const DELIVERIES = [
  "issues$labeled", "issues$unlabeled", "issues$deleted", "pull_request_review$submitted", "pull_request$labeled",
  "pull_request$opened", "pull_request$closed", "ping$event",
];

const read = (path) => JSON.parse(readFileSync(path, "utf8"));
const write = (name, value) => writeFileSync(join(to, name), JSON.stringify(value));

/// Follows every `$ref` from here and keeps what it names.
function gather(node, source, kept) {
  if (Array.isArray(node)) return node.forEach((item) => gather(item, source, kept));
  if (!node || typeof node !== "object") return;
  if (typeof node.$ref === "string" && !(node.$ref in kept)) {
    const found = node.$ref.slice(2).split("/").reduce((at, part) => at?.[part.replaceAll("~1", "/")], source);
    if (!found) throw new Error(`nothing at ${node.$ref}`);
    kept[node.$ref] = found;
    gather(found, source, kept);
  }
  Object.values(node).forEach((value) => gather(value, source, kept));
}

function modern(node) {
  if (Array.isArray(node)) return node.map(modern);
  if (!node || typeof node !== "object") return node;
  const { nullable, example, examples, discriminator, ...rest } = node;
  const plain = Object.fromEntries(
    Object.entries(rest).map(([name, value]) => [
      name,
      name === "properties" ? Object.fromEntries(Object.entries(value).map(([k, v]) => [k, modern(v)])) : modern(value),
    ]),
  );
  return nullable === true ? { anyOf: [plain, { type: "null" }] } : plain;
}

function placed(kept) {
  const root = {};
  for (const [ref, value] of Object.entries(kept)) {
    const parts = ref.slice(2).split("/");
    const last = parts.pop();
    parts.reduce((at, part) => (at[part] ??= {}), root)[last] = value;
  }
  return root;
}

const description = read(api);
const paths = {};
const kept = {};
for (const [path, methods] of Object.entries(OPERATIONS)) {
  paths[path] = {};
  for (const method of methods) {
    const operation = description.paths[path]?.[method];
    if (!operation) throw new Error(`GitHub describes no ${method} ${path}`);
    const { parameters, requestBody, responses } = operation;
    paths[path][method] = { parameters, requestBody, responses };
    gather([parameters, requestBody, responses].map((part) => without(part)), description, kept);
  }
}

/// Examples refer to much that nothing is held against.
function without(node) {
  if (Array.isArray(node)) return node.map(without);
  if (!node || typeof node !== "object") return node;
  return Object.fromEntries(
    Object.entries(node).filter(([name]) => name !== "examples").map(([name, value]) => [name, without(value)]),
  );
}

write("api.json", modern({ paths: without(paths), ...placed(Object.fromEntries(Object.entries(kept).map(([k, v]) => [k, without(v)]))) }));

const schemas = read(webhooks);
const definitions = {};
for (const name of DELIVERIES) {
  const ref = `#/definitions/${name}`;
  gather({ $ref: ref }, schemas, definitions);
}
write("webhooks.json", { $schema: schemas.$schema, ...placed(definitions) });
