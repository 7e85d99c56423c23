// What watches files and folders. Nothing tells of changes, so it looks every so often.
const { EventEmitter } = kit.requireBuiltin("events");
const { AbortError, codes } = require("deno/deno_node/internal/errors.ts");
const { Stats, sync } = require("deno/files/fs.js");

const LOOK_MS = 50;
const FILE_LOOK_MS = 5007; // as Node has it
const ENTRIES_MAX = 10000; // that are looked at in a folder
const CHANGES_MAX = 2048; // that wait to be asked for

const statOf = (path) => sync.statSync(path, { throwIfNoEntry: false });
const stampOf = (stats) => (stats === undefined ? undefined : `${stats.ino} ${stats.size} ${stats.mtimeMs}`);

// What is there below a path, by name, with what shows that it has changed.
function look(path, recursive) {
  const found = new Map();
  const stats = statOf(path);
  if (stats === undefined) return found;
  const names = stats.isDirectory() ? sync.readdirSync(path, { recursive }).slice(0, ENTRIES_MAX) : undefined;
  if (names === undefined) return found.set(path.slice(path.lastIndexOf("/") + 1), stampOf(stats));
  for (const name of names) found.set(name, stampOf(statOf(`${path}/${name}`)));
  return found;
}

const pathOf = (file) => (file instanceof URL ? kit.requireBuiltin("url").fileURLToPath(file) : String(file));

class FSWatcher extends EventEmitter {
  #timer;

  constructor(file, { persistent = true, recursive = false, signal } = {}) {
    super();
    const path = pathOf(file);
    sync.accessSync(path);
    let before = look(path, recursive);
    this.#timer = setInterval(() => {
      const after = look(path, recursive);
      const changed = [...new Set([...before.keys(), ...after.keys()])].filter((name) => before.get(name) !== after.get(name));
      const known = before;
      before = after;
      for (const name of changed) this.emit("change", known.has(name) && after.has(name) ? "change" : "rename", name);
    }, LOOK_MS);
    if (!persistent) this.unref();
    if (signal?.aborted) process.nextTick(() => this.close());
    else signal?.addEventListener("abort", () => this.close(), { once: true });
  }

  close() {
    if (this.#timer === undefined) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
    process.nextTick(() => this.emit("close"));
  }
  ref() {
    this.#timer?.ref();
    return this;
  }
  unref() {
    this.#timer?.unref();
    return this;
  }
}

function optionsOf(options, listener) {
  if (typeof options === "function") return [{}, options];
  return [typeof options === "string" ? { encoding: options } : (options ?? {}), listener];
}

function watchNow(file, given, callback) {
  const [options, listener] = optionsOf(given, callback);
  const watcher = new FSWatcher(file, options);
  if (listener !== undefined) watcher.on("change", listener);
  return watcher;
}

// The changes of a path, one after the other, until the signal ends them.
async function* watch(file, given) {
  const [options] = optionsOf(given);
  const { signal } = options;
  if (signal?.aborted) throw new AbortError(undefined, { cause: signal.reason });
  const changes = [];
  let wake;
  const watcher = new FSWatcher(file, options);
  watcher.on("change", (eventType, filename) => {
    if (changes.length < CHANGES_MAX) changes.push({ eventType, filename });
    wake?.();
  });
  watcher.on("close", () => wake?.());
  try {
    for (;;) {
      while (changes.length > 0) yield changes.shift();
      if (signal?.aborted) throw new AbortError(undefined, { cause: signal.reason });
      await new Promise((resolve) => (wake = resolve));
    }
  } finally {
    watcher.close();
  }
}

// ---- One file

const MOMENT = new Date(0);
const NOWHERE = Object.assign(Object.create(Stats.prototype), {
  dev: 0, mode: 0, nlink: 0, uid: 0, gid: 0, rdev: 0, blksize: 0, ino: 0, size: 0, blocks: 0, atimeMs: 0, mtimeMs: 0, ctimeMs: 0, birthtimeMs: 0,
  atime: MOMENT, mtime: MOMENT, ctime: MOMENT, birthtime: MOMENT,
});
const watched = new Map();

function watchFile(file, given, callback) {
  const [{ interval = FILE_LOOK_MS, persistent = true }, listener] = optionsOf(given, callback);
  if (typeof listener !== "function") throw new codes.ERR_INVALID_ARG_TYPE("listener", "Function", listener);
  const path = pathOf(file);
  if (!watched.has(path)) {
    const watcher = new EventEmitter();
    let before = statOf(path);
    watcher.timer = setInterval(() => {
      const after = statOf(path);
      if (stampOf(after) === stampOf(before)) return;
      watcher.emit("change", after ?? NOWHERE, before ?? NOWHERE);
      before = after;
    }, interval);
    if (!persistent) watcher.timer.unref();
    watched.set(path, watcher);
  }
  return watched.get(path).on("change", listener);
}

function unwatchFile(file, listener) {
  const path = pathOf(file);
  const watcher = watched.get(path);
  if (listener !== undefined) watcher?.off("change", listener);
  if (watcher === undefined || (listener !== undefined && watcher.listenerCount("change") > 0)) return;
  clearInterval(watcher.timer);
  watched.delete(path);
}

module.exports = { callbacks: { FSWatcher, unwatchFile, watch: watchNow, watchFile }, watch };
