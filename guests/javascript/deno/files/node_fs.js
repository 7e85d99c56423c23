// node:fs and node:fs/promises: the synchronous calls, and their forms with callbacks, promises and streams.
const { Dir, Dirent, Stats, codes, constants, existsSync, sync } = require("deno/files/fs.js");
const { Buffer } = require("deno/deno_node/internal/buffer.js");
const { promisify } = require("deno/deno_node/internal/util.js");
const { Readable, Writable } = kit.requireBuiltin("stream");
const watching = require("deno/files/watching.js");

const nameOf = (syncName) => syncName.slice(0, -"Sync".length);

// Calls back with what came of a call, after the code that asked for it.
function later(callback, task, ...extra) {
  if (typeof callback !== "function") throw new codes.ERR_INVALID_ARG_TYPE("cb", "function", callback);
  let outcome;
  try {
    outcome = [null, task(), ...extra];
  } catch (error) {
    if (error.syscall === undefined) throw error; // a wrong argument
    outcome = [error];
  }
  process.nextTick(callback, ...outcome);
}

const callbacks = {};
const promises = { constants };
for (const [syncName, call] of Object.entries(sync)) {
  const name = nameOf(syncName);
  callbacks[name] = { [name]: (...values) => {
    const callback = typeof values.at(-1) === "function" ? values.pop() : undefined;
    // Functions that read or write pass the buffer on.
    later(callback, () => call(...values), ...(name === "read" || name === "write" ? [values[1]] : []));
  } }[name];
  promises[name] = { [name]: async (...values) => call(...values) }[name];
}
callbacks.exists = (file, callback) => void process.nextTick(callback, existsSync(file));
callbacks.exists[promisify.custom] = async (file) => existsSync(file);
for (const name of ["read", "write"]) {
  callbacks[name][promisify.custom] = async (fd, buffer, ...rest) =>
    ({ [name === "read" ? "bytesRead" : "bytesWritten"]: sync[`${name}Sync`](fd, buffer, ...rest), buffer });
}
sync.realpathSync.native = sync.realpathSync;
callbacks.realpath.native = callbacks.realpath;

// ---- FileHandle

class FileHandle {
  #fd;
  constructor(fd) {
    this.#fd = fd;
  }
  get fd() {
    return this.#fd;
  }
  async close() {
    if (this.#fd < 0) return;
    sync.closeSync(this.#fd);
    this.#fd = -1;
  }
  async read(buffer, ...rest) {
    const target = ArrayBuffer.isView(buffer) ? buffer : (buffer?.buffer ?? Buffer.alloc(16384));
    const options = ArrayBuffer.isView(buffer) ? rest : [buffer ?? {}];
    return { __proto__: null, bytesRead: sync.readSync(this.#fd, target, ...options), buffer: target };
  }
  async write(data, ...rest) {
    return { __proto__: null, bytesWritten: sync.writeSync(this.#fd, data, ...rest), buffer: data };
  }
  async *readLines() {
    yield* String(sync.readFileSync(this.#fd, "utf8")).replace(/\r?\n$/, "").split(/\r?\n/);
  }
  createReadStream(options) {
    return new ReadStream(undefined, { ...options, fd: this.#fd, autoClose: false });
  }
  createWriteStream(options) {
    return new WriteStream(undefined, { ...options, fd: this.#fd, autoClose: false });
  }
  async [Symbol.asyncDispose]() {
    await this.close();
  }
}
const HANDLE_CALLS = {
  appendFile: "writeFileSync", datasync: "fsyncSync", readFile: "readFileSync", stat: "fstatSync", sync: "fsyncSync",
  truncate: "ftruncateSync", writeFile: "writeFileSync",
};
for (const [name, call] of Object.entries(HANDLE_CALLS)) {
  FileHandle.prototype[name] = async function (...values) {
    return sync[call](this.fd, ...values);
  };
}
// What is to be written may come in pieces.
promises.writeFile = async function writeFile(file, data, options) {
  const inPieces = typeof data === "object" && data !== null && !ArrayBuffer.isView(data) && (Symbol.asyncIterator in data || Symbol.iterator in data);
  if (!inPieces) return sync.writeFileSync(file instanceof FileHandle ? file.fd : file, data, options);
  const handle = file instanceof FileHandle ? file : await promises.open(file, options?.flag ?? "w", options?.mode);
  try {
    for await (const piece of data) sync.writeFileSync(handle.fd, piece, options);
  } finally {
    if (handle !== file) await handle.close();
  }
};
for (const name of ["appendFile", "readFile"]) {
  const ofPath = promises[name];
  promises[name] = { [name]: async (file, ...rest) => {
    if (typeof file === "number") throw new codes.ERR_INVALID_ARG_TYPE("path", ["string", "Buffer", "URL"], file);
    return ofPath(file instanceof FileHandle ? file.fd : file, ...rest);
  } }[name];
}
promises.open = async (...values) => new FileHandle(sync.openSync(...values));
for (const name of ["close", "exists", "fdatasync", "fstat", "fchmod", "fchown", "fsync", "ftruncate", "read", "readv", "write", "writev"]) delete promises[name];

promises.watch = watching.watch;
promises.glob = async function* glob(...values) {
  yield* sync.globSync(...values);
};

// ---- Streams

const optionsOf = (options) => (typeof options === "string" ? { encoding: options } : (options ?? {}));

class ReadStream extends Readable {
  #at;
  #end;
  constructor(file, given) {
    const options = optionsOf(given);
    super({ highWaterMark: options.highWaterMark ?? 65536, encoding: options.encoding, signal: options.signal });
    this.path = file;
    this.fd = options.fd?.fd ?? options.fd ?? null;
    this.flags = options.flags ?? "r";
    this.bytesRead = 0;
    this.autoClose = options.autoClose !== false;
    this.#at = options.start;
    this.#end = options.end ?? Infinity;
  }
  get pending() {
    return this.fd === null;
  }
  _construct(done) {
    open(this, done);
  }
  _read(size) {
    const left = this.#end - (this.#at ?? this.bytesRead) + 1;
    // Later, as in Node: who reads gets the pieces one by one.
    process.nextTick(() => this.#readPiece(Math.max(0, Math.min(size, left))));
  }
  #readPiece(size) {
    if (this.destroyed) return;
    const buffer = Buffer.alloc(size);
    try {
      const read = size === 0 ? 0 : sync.readSync(this.fd, buffer, 0, size, this.#at);
      if (this.#at !== undefined) this.#at += read;
      this.bytesRead += read;
      this.push(read === 0 ? null : buffer.subarray(0, read));
    } catch (error) {
      this.destroy(error);
    }
  }
  _destroy(error, done) {
    close(this, error, done);
  }
}

class WriteStream extends Writable {
  #at;
  constructor(file, given) {
    const options = optionsOf(given);
    super({ highWaterMark: options.highWaterMark, defaultEncoding: options.encoding ?? "utf8", signal: options.signal });
    this.path = file;
    this.fd = options.fd?.fd ?? options.fd ?? null;
    this.flags = options.flags ?? "w";
    this.bytesWritten = 0;
    this.autoClose = options.autoClose !== false;
    this.#at = options.start;
  }
  get pending() {
    return this.fd === null;
  }
  _construct(done) {
    open(this, done);
  }
  _write(chunk, encoding, done) {
    try {
      for (let from = 0; from < chunk.length;) {
        const written = sync.writeSync(this.fd, chunk, from, chunk.length - from, this.#at);
        from += written;
        this.bytesWritten += written;
        if (this.#at !== undefined) this.#at += written;
      }
      done();
    } catch (error) {
      done(error);
    }
  }
  _destroy(error, done) {
    close(this, error, done);
  }
}

function open(stream, done) {
  try {
    stream.fd ??= sync.openSync(stream.path, stream.flags);
    done();
    stream.emit("open", stream.fd);
    stream.emit("ready");
  } catch (error) {
    done(error);
  }
}

function close(stream, error, done) {
  try {
    if (stream.autoClose && stream.fd !== null) sync.closeSync(stream.fd);
    stream.fd = null;
    done(error);
  } catch (problem) {
    done(error ?? problem);
  }
}

module.exports = {
  ...sync, ...callbacks, Dir, Dirent, ReadStream, Stats, WriteStream, constants, existsSync, promises,
  F_OK: 0, R_OK: 4, W_OK: 2, X_OK: 1,
  createReadStream: (file, options) => new ReadStream(file, options),
  createWriteStream: (file, options) => new WriteStream(file, options),
  ...watching.callbacks,
  openAsBlob: async (file, options) => new (kit.platform("blob").Blob)([sync.readFileSync(file)], options),
};
