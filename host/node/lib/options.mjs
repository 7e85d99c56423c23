// Options of a sandbox, as requests have them.

import { randomBytes } from "node:crypto";

import { SandboxError } from "./errors.mjs";
import { functionsOf } from "./functions.mjs";
import { toolsOf } from "./tools.mjs";

const LANGUAGES = { py: "py", js: "js", python: "py", javascript: "js" };
const OPTIONS = [
  "agent", "bindings", "config", "connectors", "data", "environment", "http", "input", "language", "limits", "llm", "mounts",
  "name", "packages", "record", "snapshot", "store", "tools", "workspace",
];

/** `py` or `js`. */
export function languageCode(language) {
  const code = Object.hasOwn(LANGUAGES, language) ? LANGUAGES[language] : undefined;
  if (code === undefined) throw new TypeError(`\`${language}\` is no language of cells; say "py" or "js"`);
  return code;
}

/** Cells as a request has them. */
export function cellsOf(cells, language, timeout) {
  const list = Array.isArray(cells) ? cells : [cells];
  return list.map((given) => {
    const cell = typeof given === "string" ? { code: given } : given;
    if (typeof cell?.code !== "string") throw new TypeError("a cell is its source, or an object with its `code`");
    const made = { language: languageCode(cell.language ?? language), code: cell.code };
    if (cell.title !== undefined) made.title = cell.title;
    if ((cell.timeout ?? timeout) !== undefined) made.timeout = cell.timeout ?? timeout;
    if (cell.reset) made.reset = true;
    return made;
  });
}

/** Members of the request for a run. */
export function runMembers(session, cells, language, options) {
  const members = { session, cells: cellsOf(cells, options.language ?? language, options.timeout) };
  if (options.keepGoing) members.keep_going = true;
  if (options.producer !== undefined) members.producer = options.producer;
  return members;
}

/**
 * Checks options.
 *
 * Throws `TypeError` for one that there is not, and `SandboxError` for grants that are given twice.
 */
export async function settingsOf(options) {
  const unknown = Object.keys(options).filter((name) => !OPTIONS.includes(name));
  if (unknown.length > 0) throw new TypeError(`a sandbox has no option \`${unknown.join("`, `")}\``);
  const file = typeof options.config === "string" ? options.config : undefined;
  const granted = grants(options);
  const opening = { session: options.name ?? `s-${randomBytes(8).toString("hex")}` };
  if (file !== undefined && Object.keys(granted).length > 0) {
    throw new SandboxError("grants are given twice", "usage", "say them all in the file `config`, or none");
  }
  if (Object.keys(granted).length > 0) opening.grants = granted;
  if (options.workspace !== undefined) opening.workspace = options.workspace;
  const { described, tools } = await toolsOf(options.tools ?? {});
  if (described.length > 0) opening.tools = described;
  if (options.input) opening.input = true;
  if (options.snapshot !== undefined) opening.snapshot = pathOfSnapshot(options.snapshot);
  const functions = functionsOf(options);
  const { store, record } = options;
  return {
    language: languageCode(options.language ?? "py"),
    opening,
    tools,
    functions,
    input: typeof options.input === "function" ? options.input : null,
    connection: { store, record, config: file, functions: [...functions.keys()] },
  };
}

/** The `cellar.toml` that options stand for, as JSON. */
function grants(options) {
  const granted = typeof options.config === "object" ? { ...options.config } : {};
  for (const [key, value] of Object.entries({
    mounts: options.mounts,
    packages: options.packages,
    environment: options.environment,
    limits: options.limits,
    connectors: options.connectors,
    llm: options.llm,
    agents: options.agent,
    http: Array.isArray(options.http) ? { allow: options.http } : options.http,
  })) {
    if (value !== undefined && typeof value !== "function") granted[key] = value;
  }
  const session = { ...granted.session };
  if (options.data) session.guests = ["python-data"];
  if (options.bindings !== undefined) session.python = { ...session.python, bindings: options.bindings };
  if (Object.keys(session).length > 0) granted.session = session;
  return granted;
}

/** The path of a snapshot, or its name on a server. */
export function pathOfSnapshot(snapshot) {
  return typeof snapshot === "string" ? snapshot : snapshot.path;
}
