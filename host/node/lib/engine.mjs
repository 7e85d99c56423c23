// The one engine of this process, and what its tasks deliver.

import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { SandboxError } from "./errors.mjs";

const require = createRequire(import.meta.url);
const here = fileURLToPath(new URL("..", import.meta.url));
const packed = join(here, "dist");

const settings = {};
let starting = null;

// Promises that wait for deliveries, by ticket.
const waiting = new Map();
// Links whose cells may call, by ticket. The engine does not keep them.
const links = new Map();
const forgotten = new FinalizationRegistry((ticket) => links.delete(ticket));
let last = 0;
// The event loop goes on while something is waited for or a call is under way, and no longer.
const keeper = setInterval(() => {}, 2 ** 31 - 1).unref();
let held = 0;

/** Says where the guests are, where compiled code is kept, and how many interpreters may be in memory at the same time. */
export function configure(given) {
  if (starting !== null) {
    throw new SandboxError("the engine has started already", "usage", "call configure before the first sandbox");
  }
  for (const [name, value] of Object.entries(given)) {
    if (!["guests", "cache", "kernels"].includes(name)) {
      throw new TypeError(`there is no setting \`${name}\``);
    }
    settings[name] = value;
  }
}

/** The engine; it starts when it is first needed. */
export function engine() {
  starting ??= start();
  return starting;
}

async function start() {
  const { Engine } = require("../cellar.node");
  const made = new Engine(deliver);
  const guests = settings.guests ?? process.env.CELLAR_GUESTS ?? packedGuests();
  const home = process.env.XDG_CACHE_HOME || join(homedir(), ".cache");
  const program = process.env.CELLAR_PROGRAM ?? join(packed, "bin/cellar");
  const given = {
    guests,
    cache: settings.cache ?? process.env.CELLAR_CACHE ?? join(home, "cellar"),
    program: existsSync(program) ? program : undefined,
    codeList: codeList(guests),
    kernels: settings.kernels,
  };
  try {
    await ask((ticket) => made.start(ticket, given));
  } catch (error) {
    starting = null;
    throw error;
  }
  return made;
}

/** The guests of `cellar-sandbox-data`, which are all of them, where it is installed; those of this package otherwise. */
function packedGuests() {
  try {
    return join(require.resolve("cellar-sandbox-data/package.json"), "../dist/lib/cellar/guests");
  } catch {
    return join(packed, "lib/cellar/guests");
  }
}

/** The digest of the list of machine code that came with the guests. */
function codeList(guests) {
  try {
    return readFileSync(join(guests, "../../../code.sha256.sha256"), "ascii").trim();
  } catch {
    return undefined;
  }
}

/** Holds the event loop for so many reasons more, or less. */
export function hold(more) {
  const before = held;
  held += more;
  if (before === 0 && held > 0) keeper.ref();
  if (before > 0 && held === 0) keeper.unref();
}

/** Begins something by a ticket, and waits for its end. */
export function ask(begin) {
  return new Promise((resolve, reject) => {
    const ticket = next(waiting);
    waiting.set(ticket, { resolve, reject });
    hold(1);
    try {
      begin(ticket);
    } catch (error) {
      settle(ticket);
      reject(error instanceof SandboxError ? error : new SandboxError(error.message, "closed"));
    }
  });
}

/** Gives a link a ticket, by which the calls of its cells come. */
export function enlist(link) {
  const ticket = next(links);
  links.set(ticket, new WeakRef(link));
  forgotten.register(link, ticket, link);
  return ticket;
}

/** Ends that. */
export function delist(link, ticket) {
  links.delete(ticket);
  forgotten.unregister(link);
}

// Tickets of links are odd, those of promises even.
function next(map) {
  do {
    last = (last + 2) % 2 ** 32;
  } while (map.has(map === links ? last + 1 : last));
  return map === links ? last + 1 : last;
}

function settle(ticket) {
  const found = waiting.get(ticket);
  if (waiting.delete(ticket)) hold(-1);
  return found;
}

function deliver(ticket, value, error) {
  if (ticket % 2 === 1) {
    links.get(ticket)?.deref()?.handle(value);
    return;
  }
  const found = settle(ticket);
  if (found === undefined) return;
  if (typeof error === "string") {
    const { code, message, hint } = JSON.parse(error);
    found.reject(new SandboxError(message, code, hint));
  } else {
    found.resolve(value);
  }
}
