// node:zlib: zlib and Brotli, all at once or as streams.
const { Buffer } = require("deno/deno_node/internal/buffer.js");
const { Transform } = kit.requireBuiltin("stream");
const { Coder, encodes, finishOf, isBrotli } = require("deno/streams/coders.js");
const { codes: names, constants } = require("deno/streams/zlib_constants.js");

const { Z_FINISH, Z_FULL_FLUSH, Z_NO_FLUSH, Z_SYNC_FLUSH, BROTLI_OPERATION_FLUSH, BROTLI_OPERATION_PROCESS } = constants;
const errors = () => kit.platform("codes");
// What may come of unpacking at once.
const OUTPUT_BYTES_MAX = 2 ** 31 - 1;
// Brotli's window has room for all of what is packed at once: more would cost memory and no bytes.
const { BROTLI_PARAM_LGWIN, BROTLI_DEFAULT_WINDOW, BROTLI_MIN_WINDOW_BITS } = constants;

// What says that a buffer only asks for a flush.
const kFlush = Symbol("flush");

function failure(name, { message, status, stack }) {
  if (status === undefined) return Object.assign(new Error(message), { stack });
  if (!isBrotli(name) || status === constants.Z_BUF_ERROR) return Object.assign(new Error(message), { errno: status, code: names[status] });
  const [code, text] = encodes(name) ? ["ERR_BROTLI_COMPRESSION_FAILED", "Compression failed"] : [`ERR_${message}`, "Decompression failed"];
  return Object.assign(new Error(text), { errno: status, code });
}

function bytesOf(data) {
  if (typeof data === "string") return Buffer.from(data);
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  if (data instanceof ArrayBuffer || data instanceof SharedArrayBuffer) return new Uint8Array(data);
  throw new (errors().ERR_INVALID_ARG_TYPE)("buffer", ["string", "Buffer", "TypedArray", "DataView", "ArrayBuffer"], data);
}

// Options that zlib has, within their bounds.
const BOUNDS = { windowBits: [8, 15], level: [-1, 9], memLevel: [1, 9], strategy: [0, 4], chunkSize: [64, Infinity], maxOutputLength: [1, OUTPUT_BYTES_MAX] };

function checked(name, options) {
  const found = {};
  for (const [key, [low, high]] of Object.entries(BOUNDS)) {
    const value = options?.[key];
    if (value === undefined || Number.isNaN(value)) continue;
    if (typeof value !== "number") throw new (errors().ERR_INVALID_ARG_TYPE)(`options.${key}`, "number", value);
    const isData = key === "windowBits" && value === 0 && !encodes(name);
    if (!isData && (value < low || value > high)) throw new (errors().ERR_OUT_OF_RANGE)(`options.${key}`, `>= ${low} and <= ${high}`, value);
    found[key] = value;
  }
  if (options?.dictionary !== undefined) found.dictionary = bytesOf(options.dictionary);
  if (options?.params !== undefined) {
    for (const [key, value] of Object.entries(options.params)) {
      if (!/^\d$/.test(key)) throw coded(RangeError, "ERR_BROTLI_INVALID_PARAM", `${key} is not a valid Brotli parameter`);
      if (typeof value !== "number" && typeof value !== "boolean") throw new (errors().ERR_INVALID_ARG_TYPE)("options.params[key]", "number", value);
    }
    found.params = { ...options.params };
  }
  return found;
}

const coded = (Class, code, message) => Object.assign(new Class(message), { code });

function open(name, options) {
  try {
    return new Coder(name, options);
  } catch (cause) {
    if (cause.message === "Initialization failed") throw coded(Error, "ERR_ZLIB_INITIALIZATION_FAILED", cause.message);
    throw cause.message === "Bad dictionary" ? Object.assign(cause, { errno: -3, code: "Z_DATA_ERROR" }) : cause;
  }
}

// ---- Streams

class ZlibBase extends Transform {
  #name;
  #coder;
  #flush;
  #finish;
  bytesWritten = 0;

  constructor(name, options) {
    const own = checked(name, options);
    super({ autoDestroy: true, ...options });
    this.#name = name;
    this.#coder = open(name, own);
    this.#flush = options?.flush ?? (isBrotli(name) ? BROTLI_OPERATION_PROCESS : Z_NO_FLUSH);
    this.#finish = options?.finishFlush ?? finishOf(name);
  }

  #push(bytes, flush, done) {
    try {
      this.bytesWritten += this.#coder.push(bytes, flush, (piece) => this.push(Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength)));
    } catch (error) {
      return done(failure(this.#name, error));
    }
    return done();
  }
  _transform(chunk, encoding, done) {
    this.#push(bytesOf(chunk), chunk[kFlush] ?? this.#flush, done);
  }
  _flush(done) {
    if (this.#coder.ended) return done();
    return this.#push(new Uint8Array(0), this.#finish, done);
  }
  flush(kind, callback) {
    if (typeof kind === "function" || kind === undefined) {
      callback = kind;
      kind = isBrotli(this.#name) ? BROTLI_OPERATION_FLUSH : Z_FULL_FLUSH;
    }
    if (this.writableFinished) {
      if (callback) process.nextTick(callback);
    } else if (this.writableEnded) {
      if (callback) this.once("end", callback);
    } else {
      this.write(Object.assign(Buffer.alloc(0), { [kFlush]: kind }), "", callback);
    }
  }
  params(level, strategy, callback) {
    checked(this.#name, { level, strategy });
    this.flush(Z_SYNC_FLUSH, () => {
      this.#coder.tune(level, strategy);
      callback?.();
    });
  }
  reset() {
    this.#coder.reset();
  }
  close(callback) {
    if (callback) this.once("close", callback);
    this.destroy();
  }
  get bytesRead() {
    return this.bytesWritten;
  }
}

const streamOf = (name) => ({ [name]: class extends ZlibBase {
  constructor(options) {
    super(name, options);
  }
} })[name];

// ---- All at once

function whole(name, data, options) {
  const bytes = bytesOf(data);
  const own = checked(name, options);
  if (name === "BrotliCompress") {
    const needed = Math.max(BROTLI_MIN_WINDOW_BITS, 33 - Math.clz32(bytes.length + 16));
    own.params = { ...own.params, [BROTLI_PARAM_LGWIN]: Math.min(own.params?.[BROTLI_PARAM_LGWIN] ?? BROTLI_DEFAULT_WINDOW, needed) };
  }
  const pieces = [];
  let size = 0;
  const coder = open(name, own);
  const most = own.maxOutputLength ?? OUTPUT_BYTES_MAX;
  const take = (piece) => {
    pieces.push(piece);
    size += piece.length;
    if (size > most) throw new (errors().ERR_BUFFER_TOO_LARGE)(most);
  };
  try {
    coder.push(bytes, options?.finishFlush ?? finishOf(name), take);
  } catch (error) {
    throw error.code === undefined ? failure(name, error) : error;
  }
  if (pieces.length === 1) return Buffer.from(pieces[0].buffer, pieces[0].byteOffset, size);
  return Buffer.concat(pieces, size);
}

const withCallback = (name) => (data, options, callback) => {
  if (typeof options === "function") [options, callback] = [undefined, options];
  if (typeof callback !== "function") throw new (errors().ERR_INVALID_ARG_TYPE)("callback", "Function", callback);
  bytesOf(data);
  setImmediate(() => {
    let outcome;
    try {
      outcome = [null, whole(name, data, options)];
    } catch (error) {
      outcome = [error];
    }
    callback(...outcome);
  });
};

const exported = { constants, codes: names };
const lower = (name) => name[0].toLowerCase() + name.slice(1);
for (const name of ["Deflate", "Inflate", "Gzip", "Gunzip", "DeflateRaw", "InflateRaw", "Unzip", "BrotliCompress", "BrotliDecompress"]) {
  const Class = streamOf(name);
  // As in Node, `new` may be left out.
  exported[name] = new Proxy(Class, { apply: (_, _this, [options]) => new Class(options) });
  exported[`create${name}`] = (options) => new Class(options);
  exported[lower(name)] = withCallback(name);
  exported[`${lower(name)}Sync`] = (data, options) => whole(name, data, options);
}
exported.crc32 = (data, start = 0) => host.crc32(bytesOf(data), start);
for (const name of ["zstdCompress", "zstdCompressSync", "zstdDecompress", "zstdDecompressSync", "createZstdCompress", "createZstdDecompress"]) {
  exported[name] = () => {
    throw kit.unsupported(`zlib.${name}`, "there is no Zstandard; Brotli, gzip and deflate are there");
  };
}
for (const [name, value] of Object.entries(constants)) if (/^Z_/.test(name)) Object.defineProperty(exported, name, { value });

module.exports = exported;
