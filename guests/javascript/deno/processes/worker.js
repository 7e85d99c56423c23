// Workers of node:worker_threads. There is one thread: a worker is a program of its own within it, with its own `require`, that
// takes turns with the others where it awaits. What it says and is told is copied, as elsewhere.
const { EventEmitter } = kit.requireBuiltin("events");
const { MessageChannel, MessagePort } = kit.platform("messages");
const { Readable, Writable } = kit.requireBuiltin("stream");
const { core } = require("deno/runtime/bootstrap.js");

const WORKERS_MAX = 256;
// The names of a static import: `x`, `* as x`, `{ a, b as c }`, or the first with one of the others.
const IMPORT = /^[ \t]*import\s+(?:([\w$]+)\s*,?\s*)?(?:\*\s*as\s+([\w$]+)|\{([^}]*)\})?\s*from\s*(["'][^"'\n]+["'])\s*;?/gm;

class Exit {
  constructor(code) {
    this.code = code;
  }
}

let count = 0;
let alive = 0;

// Which worker the running code is of: what it throws and nothing catches ends the worker, and not the cell.
const current = new core.AsyncVariable();
kit.catchers.push((error) => current.get()?.(error) ?? false);

// Static imports as calls of `require`, of which a worker has one of its own.
function withoutImports(source) {
  return source.replace(IMPORT, (_all, first, whole, names, from) => {
    const parts = [];
    if (first !== undefined) parts.push(`const ${first} = ((found) => found?.default ?? found)(require(${from}));`);
    if (whole !== undefined) parts.push(`const ${whole} = require(${from});`);
    if (names !== undefined) parts.push(`const {${names.replace(/\s+as\s+/g, ": ")}} = require(${from});`);
    return parts.join(" ");
  });
}

// A copy of what a worker is given. Memory that is shared stays the same.
function copied(value) {
  if (value instanceof MessagePort) return value;
  if (value instanceof SharedArrayBuffer || (ArrayBuffer.isView(value) && value.buffer instanceof SharedArrayBuffer)) return value;
  if (Array.isArray(value)) return value.map(copied);
  if (value !== null && typeof value === "object" && Object.getPrototypeOf(value) === Object.prototype) {
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, copied(each)]));
  }
  return structuredClone(value);
}

// What a worker knows of the thread that started it.
class ParentPort extends EventEmitter {
  #port;
  #end;
  #handler;

  constructor(port, guarded, end) {
    super();
    this.#port = port;
    this.#end = end;
    port.on("message", (data) => guarded(() => this.emit("message", data)));
  }
  postMessage(message, transfer) {
    this.#port.postMessage(message, transfer);
  }
  get onmessage() {
    return this.#handler;
  }
  set onmessage(handler) {
    if (this.#handler) this.off("message", this.#handler.listener);
    this.#handler = handler;
    if (handler) this.on("message", (handler.listener = (data) => handler.call(this, { data })));
  }
  addEventListener(type, listener) {
    this.on(type, (data) => listener.call(this, { type, data }));
  }
  close() {
    this.removeAllListeners("message");
    this.#end();
  }
  start() {}
  ref() {}
  unref() {}
}

function sourceOf(file, options) {
  if (options.eval) return { source: String(file), path: "[worker eval]" };
  const url = file instanceof URL ? file : /^(?:data|file):/.test(file) ? new URL(file) : undefined;
  if (url?.protocol === "data:") {
    const [, base64, text] = /^data:[^,;]*(?:;charset=[^,;]*)?(;base64)?,(.*)$/s.exec(url.href) ?? [undefined, undefined, ""];
    return { source: base64 ? atob(text) : decodeURIComponent(text), path: "[worker eval]" };
  }
  const path = url === undefined ? kit.requireBuiltin("path").resolve(String(file)) : kit.requireBuiltin("url").fileURLToPath(url);
  return { source: kit.requireBuiltin("fs").readFileSync(path, "utf8"), path };
}

// Makes the class, for a module of which workers see a form of their own.
const make = (base) => class Worker extends EventEmitter {
  #port;
  #timers = new Set();
  #parent;
  #isOver = false;
  #isBusy = true;
  #file;

  constructor(file, options = {}) {
    super();
    if (alive >= WORKERS_MAX) throw kit.coded("ERR_WORKER_OUT_OF_MEMORY", `more than ${WORKERS_MAX} workers run`);
    const { source, path } = sourceOf(file, options);
    this.threadId = ++count;
    this.resourceLimits = {};
    this.stdin = null;
    // What the worker prints, where it is asked for; else it is output of the cell.
    for (const name of ["stdout", "stderr"]) this[name] = options[name] ? new Readable({ read() {} }) : null;
    alive++;
    this.#file = path;
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    port1.on("message", (data) => this.emit("message", data));
    const data = options.workerData === undefined ? null : copied(options.workerData);
    host.startTimer(() => this.#begin(source, port2, data, options), 0);
  }

  #begin(source, port, workerData, options) {
    if (this.#isOver) return;
    this.emit("online");
    this.#parent = new ParentPort(port, (run) => this.#guarded(run), () => this.#settleLater());
    const own = { ...base(), isMainThread: false, parentPort: this.#parent, threadId: this.threadId, workerData };
    const module = { exports: {}, filename: this.#file };
    const inner = kit.requireBuiltin("module").createRequire(this.#file.startsWith("/") ? this.#file : `${host.workingDirectory()}/worker.js`);
    const require = (name) => (name === "worker_threads" || name === "node:worker_threads" ? own : inner(name));
    Object.assign(require, inner);
    const process_ = Object.create(process, {
      exit: { value: (code = 0) => { throw new Exit(code) } },
      argv: { value: [process.execPath, this.#file, ...(options.argv ?? []).map(String)] },
      env: { value: options.env ?? process.env },
    });
    const names = { exports: module.exports, require, module, __filename: this.#file, __dirname: kit.paths.folderOf(this.#file), process: process_, ...this.#ownTimers(), ...this.#ownConsole() };
    this.#guarded(() => this.#run(source, names));
  }

  #run(source, names) {
    const text = withoutImports(source);
    const isAsync = /\bawait\b/.test(text) || text !== source;
    const wrapped = `(${isAsync ? "async " : ""}function (${Object.keys(names).join(", ")}) {${text}\n})`;
    const done = kit.requireBuiltin("vm").runInThisContext(wrapped, { filename: this.#file }).apply(names.exports, Object.values(names));
    if (!isAsync) return this.#rest();
    done.then(() => this.#rest(), (error) => this.#fail(error));
  }

  // A console of its own, where what it prints is asked for.
  #ownConsole() {
    if (this.stdout === null && this.stderr === null) return {};
    const { Console } = kit.requireBuiltin("console");
    const to = (stream, usual) => (stream === null ? usual : new Writable({
      write(chunk, encoding, done) {
        stream.push(chunk);
        done();
      },
    }));
    return { console: new Console({ stdout: to(this.stdout, process.stdout), stderr: to(this.stderr, process.stderr) }) };
  }

  // Timers that the worker is waited for with.
  #ownTimers() {
    const timers = this.#timers;
    const once = (set) => (callback, ...rest) => {
      const timer = set((...values) => {
        timers.delete(timer);
        this.#guarded(() => callback(...values));
        this.#settleLater();
      }, ...rest);
      timers.add(timer);
      return timer;
    };
    const clearWith = (clear) => (timer) => {
      timers.delete(timer);
      clear(timer);
      this.#settleLater();
    };
    return {
      setTimeout: once(setTimeout), setImmediate: once(setImmediate),
      setInterval: (callback, ...rest) => {
        const timer = setInterval((...values) => this.#guarded(() => callback(...values)), ...rest);
        timers.add(timer);
        return timer;
      },
      clearTimeout: clearWith(clearTimeout), clearImmediate: clearWith(clearImmediate), clearInterval: clearWith(clearInterval),
    };
  }

  #rest() {
    this.#isBusy = false;
    this.#settleLater();
  }

  #guarded(run) {
    if (this.#isOver) return;
    const outer = current.enter((error) => {
      this.#fail(error);
      return true;
    });
    try {
      run();
    } catch (error) {
      this.#fail(error);
    } finally {
      core.setAsyncContext(outer);
    }
    this.#settleLater();
  }

  #fail(error) {
    if (this.#isOver) return;
    if (error instanceof Exit) return this.#finish(error.code);
    this.#finish(1, () => this.emit("error", error instanceof Error ? structuredClone(error) : error));
  }

  // Ends it in a later turn when nothing is left that it waits for.
  #settleLater() {
    if (this.#isBusy || this.#isOver) return;
    host.startTimer(() => {
      if (!this.#isOver && !this.#isBusy && this.#timers.size === 0 && this.#parent.listenerCount("message") === 0) this.#finish(0);
    }, 1);
  }

  #finish(code, first = () => {}) {
    if (this.#isOver) return;
    this.#isOver = true;
    alive--;
    for (const timer of this.#timers) clearTimeout(timer);
    this.threadId = -1;
    // What it has said before arrives first.
    host.startTimer(() => {
      first();
      for (const stream of [this.stdout, this.stderr]) stream?.push(null);
      // Who waits for its error can then wait for its end.
      host.startTimer(() => this.emit("exit", code), 0);
    }, 1);
  }

  postMessage(message, transfer) {
    if (!this.#isOver) this.#port.postMessage(message, transfer);
  }
  terminate() {
    if (this.#isOver) return Promise.resolve();
    return new Promise((resolve) => {
      this.once("exit", resolve);
      this.#finish(1);
    });
  }
  ref() {}
  unref() {}
  [Symbol.asyncDispose]() {
    return this.terminate();
  }
};

module.exports = { make };
