// Sandboxes.

import { randomBytes } from "node:crypto";
import { lstat, readFile, readdir } from "node:fs/promises";
import { join, relative, sep } from "node:path";

import { ask, engine } from "./engine.mjs";
import { SandboxError, closed } from "./errors.mjs";
import { toJson } from "./json.mjs";
import { Link, checked } from "./link.mjs";
import { languageCode, pathOfSnapshot, runMembers, settingsOf } from "./options.mjs";
import { Result, eventOf } from "./results.mjs";
import { Snapshot } from "./snapshot.mjs";

const asyncDispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");
const NAME = /^[\p{ID_Start}_$][\p{ID_Continue}$]*$/u;

/** A sandbox whose names and files live on from cell to cell. */
export class Sandbox {
  #link;
  #count = 0;

  /** Opens a sandbox in this process. It is granted nothing but what its options say. */
  static async create(options = {}) {
    return await Sandbox.#begin(null, options);
  }

  /** Opens a sandbox on a server, with the same methods. It ends with this object. */
  static async connect(url, token, options = {}) {
    return await Sandbox.#begin({ url, token }, options);
  }

  static async #begin(server, options) {
    const settings = await settingsOf(options);
    const { connection, functions, language, opening } = settings;
    if (server !== null && functions.size > 0) {
      throw new SandboxError(`a server answers \`${[...functions.keys()].join("`, `")}\` itself`);
    }
    if (server !== null && (connection.store ?? connection.record ?? connection.config) !== undefined) {
      throw new SandboxError("`store`, `record` and the file `config` are a server's own");
    }
    const link = await Link.open(settings, server);
    try {
      await link.request("open", opening);
    } catch (error) {
      link.release();
      throw error;
    }
    return new Sandbox(link, opening.session, language);
  }

  /** Not for programs: see `Sandbox.create`. */
  constructor(link, name, language) {
    if (!(link instanceof Link)) throw new TypeError("a sandbox is opened by `await Sandbox.create()`");
    this.#link = link;
    this.name = name;
    this.language = language;
  }

  #open() {
    if (this.#link === null) throw closed();
    return this.#link;
  }

  /** Runs cells, and returns what they come to. A cell that raises is no exception here: see `Result.check`. */
  async run(cells, options = {}) {
    const { signal } = options;
    signal?.throwIfAborted();
    const link = this.#open();
    if (link.settings.input !== null) {
      const run = this.stream(cells, { ...options, signal: undefined });
      return await aborted(run.result(), signal, () => run.cancel());
    }
    let id;
    const answer = link.request("run", runMembers(this.name, cells, this.language, options), (given) => (id = given));
    const { result } = await aborted(answer, signal, () => link.cancel(id));
    return new Result(result);
  }

  /** Runs cells, and gives their events as they happen. What is not read holds up the cells. */
  stream(cells, options = {}) {
    options.signal?.throwIfAborted();
    return new Run(this.#open(), this.name, runMembers(this.name, cells, this.language, options), options.signal);
  }

  /** Makes a function of the program run in this sandbox, which knows nothing around it: arguments and results are JSON. */
  async cell(fn) {
    const name = `__cell${++this.#count}`;
    (await this.run(`var ${name} = (${fn});`, { language: "js" })).check();
    return async (...args) => {
      const code = `({ value: await ${name}(...JSON.parse(${JSON.stringify(toJson(args))})) })`;
      return (await this.run(code, { language: "js" })).check().json?.value;
    };
  }

  /** The value of a name, as JSON has it. */
  async get(name, options = {}) {
    const language = languageCode(options.language ?? this.language);
    const code = language === "py" ? `{"value": ${checkedName(name)}}` : `({ value: ${checkedName(name)} })`;
    const found = (await this.run(code, { language })).check().json;
    if (found === undefined || !("value" in found)) throw new SandboxError(`\`${name}\` is no JSON`);
    return found.value;
  }

  /** Binds a name to a value, which crosses as JSON. */
  async set(name, value, options = {}) {
    const language = languageCode(options.language ?? this.language);
    const text = JSON.stringify(toJson(value));
    const code =
      language === "py"
        ? `${checkedName(name)} = __import__('json').loads(${text})`
        : `var ${checkedName(name)} = JSON.parse(${text});`;
    (await this.run(code, { language })).check();
  }

  /** Its files. */
  get files() {
    return new Folder((begin) => this.#open().local((connection, ticket) => begin(connection, ticket, this.name)));
  }

  /** Its names, each with a preview of what it has. */
  async variables(options = {}) {
    const language = languageCode(options.language ?? this.language);
    return JSON.parse(await this.#open().local((connection, ticket) => connection.variables(ticket, this.name, language)));
  }

  /** Completions of a text at a cursor, which is at its end unless given. */
  async complete(code, options = {}) {
    const language = languageCode(options.language ?? this.language);
    // The engine counts characters, and JavaScript units of UTF-16.
    const cursor = [...code.slice(0, options.cursor ?? code.length)].length;
    const begin = (connection, ticket) => connection.complete(ticket, this.name, language, code, cursor);
    return JSON.parse(await this.#open().local(begin));
  }

  /** Gives a language, or all, a fresh interpreter. Files stay. */
  async reset(language) {
    const members = language === undefined ? {} : { language: languageCode(language) };
    await this.#open().request("reset", { session: this.name, ...members });
  }

  /** A sandbox of its own that begins with the state of this one: names, open generators, files. */
  async fork(name) {
    const link = this.#open();
    link.users += 1;
    try {
      const members = name === undefined ? {} : { new: name };
      const { session } = await link.request("fork", { session: this.name, ...members });
      return new Sandbox(link, session, this.language);
    } catch (error) {
      link.release();
      throw error;
    }
  }

  /** Writes its state into a file: one of its own that goes with the snapshot, unless a path is given. */
  async snapshot(path) {
    const link = this.#open();
    let snapshot;
    if (path !== undefined) {
      snapshot = new Snapshot(path);
    } else if (link.connection.isLocal) {
      snapshot = await Snapshot._temporary();
    } else {
      snapshot = new Snapshot(`${this.name}-${randomBytes(4).toString("hex")}`);
    }
    await link.request("snapshot", { session: this.name, file: snapshot.path });
    return snapshot;
  }

  /** Takes it back to a snapshot. Files stay as they are. */
  async rewind(snapshot) {
    await this.#open().request("restore", { session: this.name, file: pathOfSnapshot(snapshot) });
  }

  /** Gives its memory back until it is used again. */
  async hibernate() {
    await this.#open().local((connection, ticket) => connection.hibernate(ticket, this.name));
  }

  /** Ends the recording, which closing it does as well. */
  async endRecording() {
    await this.#open().local((connection, ticket) => connection.endRecording(ticket, this.name));
  }

  /** Ends it and its runs. What is kept in a store is on the disk when this returns. */
  async close() {
    const link = this.#link;
    this.#link = null;
    if (link === null) return;
    try {
      await link.request("close", { session: this.name });
    } finally {
      link.release();
    }
  }

  async [asyncDispose]() {
    await this.close();
  }
}

/** A run under way: an asynchronous iterator of its events. */
export class Run {
  #filling = null;
  #id;
  #link;
  #mailbox;
  #read = [];
  #result = null;
  #session;
  #stopped;

  /** Not for programs: see `Sandbox.stream`. */
  constructor(link, session, members, signal) {
    this.#link = link;
    this.#session = session;
    ({ id: this.#id, mailbox: this.#mailbox } = link.follow("run", members));
    const abort = () => this.cancel();
    signal?.addEventListener("abort", abort, { once: true });
    this.#stopped = () => signal?.removeEventListener("abort", abort);
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  async next() {
    const event = await this.#next();
    return event === undefined ? { done: true, value: undefined } : { done: false, value: event };
  }

  /** Stops the run: its events are not wanted any more. */
  async return() {
    if (this.#result === null) this.cancel();
    return { done: true, value: undefined };
  }

  async #next() {
    while (this.#read.length === 0) {
      if (this.#result !== null) return undefined;
      this.#filling ??= this.#fill();
      await this.#filling;
    }
    const answer = checked(this.#read.shift());
    if (answer.type === "result") {
      this.#result = new Result(answer.result);
      this.#stopped();
      return undefined;
    }
    const event = eventOf(answer.event);
    const { input } = this.#link.settings;
    if (event.type === "input_request" && input !== null) this.answer(event, (await input(event.prompt)) ?? null);
    return event;
  }

  async #fill() {
    try {
      const answers = await ask((ticket) => this.#mailbox.take(ticket));
      if (answers === null || answers === undefined) throw closed("the connection has ended");
      this.#read.push(...JSON.parse(answers));
    } finally {
      this.#filling = null;
    }
  }

  /** Result of the run. Reads the events that are left. */
  async result() {
    while ((await this.#next()) !== undefined);
    return this.#result;
  }

  /** Answers a request for input; null is the end of the input. */
  answer(request, value) {
    const { requestId } = request;
    this.#link.tell({ type: "submit_input", session: this.#session, request_id: requestId, value });
  }

  /** Stops the run, which goes on to its proper end; what its cells have made stays. */
  cancel() {
    if (this.#result === null) this.#link.cancel(this.#id);
  }

  async [asyncDispose]() {
    await this.return();
  }
}

/** Files of a sandbox. Paths are below `/workspace` unless they begin with a slash. */
export class Folder {
  #begin;

  /** Not for programs: see `Sandbox.files`. */
  constructor(begin) {
    this.#begin = begin;
  }

  /** A file: its bytes, or its text. */
  async read(path, encoding) {
    const bytes = await this.#begin((connection, ticket, session) => connection.readFile(ticket, session, pathOf(path)));
    return encoding === undefined ? bytes : bytes.toString(encoding);
  }

  /** Writes a file, and makes the folders that it is in. */
  async write(path, content) {
    const bytes = typeof content === "string" ? Buffer.from(content) : content;
    await this.#begin((connection, ticket, session) => connection.writeFile(ticket, session, pathOf(path), bytes));
  }

  /** The entries of a folder, by name. */
  async list(path = "/workspace") {
    const found = await this.#begin((connection, ticket, session) => connection.listFiles(ticket, session, pathOf(path)));
    return JSON.parse(found).sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** Removes a file, or a folder that is empty. */
  async remove(path) {
    await this.#begin((connection, ticket, session) => connection.removeFile(ticket, session, pathOf(path)));
  }

  /** Copies a folder of the host with all in it. Links in it are not followed. */
  async upload(folder, path = "/workspace") {
    const target = pathOf(path).replace(/\/+$/, "");
    for (const name of await readdir(folder, { recursive: true })) {
      const source = join(folder, name);
      if (!(await lstat(source)).isFile()) continue;
      const below = relative(folder, source).split(sep).join("/");
      await this.write(`${target}/${below}`, await readFile(source));
    }
  }
}

/** Plays a recording again, in this process and with nothing granted, and returns its events, which are those of then. */
export async function replay(path) {
  const found = await engine();
  const events = JSON.parse(await ask((ticket) => found.replay(ticket, path)));
  return events.map(({ event }) => eventOf(event));
}

/** A promise that a signal rejects. */
async function aborted(promise, signal, cancel) {
  if (signal === undefined) return await promise;
  let abort;
  const stopped = new Promise((_, reject) => {
    abort = () => {
      cancel();
      reject(signal.reason);
    };
    signal.addEventListener("abort", abort, { once: true });
  });
  try {
    return await Promise.race([promise, stopped]);
  } finally {
    signal.removeEventListener("abort", abort);
    // What it comes to after that is nobody's.
    promise.catch(() => {});
  }
}

function pathOf(path) {
  return path.startsWith("/") ? path : `/workspace/${path}`;
}

function checkedName(name) {
  if (!NAME.test(name)) throw new TypeError(`\`${name}\` is no name`);
  return name;
}
