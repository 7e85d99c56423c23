// The part of the web platform and of Node that a cell may expect.
(function (host, kit) {
  "use strict";

  const { define } = kit;

  // ---- Text

  class TextEncoder {
    get encoding() {
      return "utf-8";
    }
    encode(text = "") {
      return host.encodeText(String(text));
    }
    encodeInto(text, target) {
      let read = 0;
      let written = 0;
      for (const c of String(text)) {
        const bytes = host.encodeText(c);
        if (written + bytes.length > target.length) break;
        target.set(bytes, written);
        written += bytes.length;
        read += c.length;
      }
      return { read, written };
    }
  }

  const FORMS = [
    [0xc2, 0xdf, 0x80, 0xbf, 1], [0xe0, 0xe0, 0xa0, 0xbf, 2], [0xe1, 0xec, 0x80, 0xbf, 2], [0xed, 0xed, 0x80, 0x9f, 2],
    [0xee, 0xef, 0x80, 0xbf, 2], [0xf0, 0xf0, 0x90, 0xbf, 3], [0xf1, 0xf3, 0x80, 0xbf, 3], [0xf4, 0xf4, 0x80, 0x8f, 3],
  ];

  // UTF-8 with mistakes in it, as the Encoding standard decodes it. Returns the text and the bytes that begin a
  // character which has not ended.
  function decodeLossy(bytes) {
    let out = "";
    let i = 0;
    while (i < bytes.length) {
      const first = bytes[i];
      if (first < 0x80) {
        out += String.fromCharCode(first);
        i++;
        continue;
      }
      const form = FORMS.find(([low, high]) => first >= low && first <= high);
      if (form === undefined) {
        out += "\ufffd";
        i++;
        continue;
      }
      let code = first & (form[4] === 1 ? 0x1f : form[4] === 2 ? 0x0f : 0x07);
      let n = 1;
      while (n <= form[4] && i + n < bytes.length) {
        const next = bytes[i + n];
        if (next < (n === 1 ? form[2] : 0x80) || next > (n === 1 ? form[3] : 0xbf)) break;
        code = (code << 6) | (next & 0x3f);
        n++;
      }
      if (n > form[4]) out += String.fromCodePoint(code);
      else if (i + n === bytes.length) return { text: out, rest: bytes.slice(i) };
      else out += "\ufffd";
      i += n;
    }
    return { text: out, rest: new Uint8Array(0) };
  }

  const viewOf = (data) => (data instanceof ArrayBuffer ? new Uint8Array(data) : new Uint8Array(data.buffer, data.byteOffset, data.byteLength));

  // Text of bytes that should be UTF-8.
  kit.decode = (bytes) => {
    const whole = host.decodeText(bytes);
    if (whole !== undefined) return whole;
    const { text, rest } = decodeLossy(viewOf(bytes));
    return rest.length > 0 ? text + "\ufffd" : text;
  };

  class TextDecoder {
    #fatal;
    #ignoreBOM;
    #rest = new Uint8Array(0);
    #started = false;
    constructor(label = "utf-8", options) {
      if (!["utf-8", "utf8", "unicode-1-1-utf-8"].includes(String(label).trim().toLowerCase())) {
        throw new RangeError(`the encoding '${label}' is not supported`);
      }
      this.#fatal = options?.fatal === true;
      this.#ignoreBOM = options?.ignoreBOM === true;
    }
    get encoding() {
      return "utf-8";
    }
    get fatal() {
      return this.#fatal;
    }
    get ignoreBOM() {
      return this.#ignoreBOM;
    }
    decode(data, options) {
      let bytes = data === undefined ? new Uint8Array(0) : viewOf(data);
      if (this.#rest.length > 0) {
        const joined = new Uint8Array(this.#rest.length + bytes.length);
        joined.set(this.#rest);
        joined.set(bytes, this.#rest.length);
        bytes = joined;
        this.#rest = new Uint8Array(0);
      }
      let text = host.decodeText(bytes);
      if (text === undefined) {
        const lossy = decodeLossy(bytes);
        const streams = options?.stream === true;
        text = lossy.text + (lossy.rest.length > 0 && !streams ? "\ufffd" : "");
        if (streams) this.#rest = lossy.rest;
        const whole = bytes.subarray(0, bytes.length - (streams ? lossy.rest.length : 0));
        if (this.#fatal && host.decodeText(whole) === undefined) throw new TypeError("the data is not valid UTF-8");
      }
      const first = !this.#started;
      this.#started = options?.stream === true;
      return first && !this.#ignoreBOM && text.startsWith("\ufeff") ? text.slice(1) : text;
    }
  }
  define(globalThis, "TextEncoder", TextEncoder);
  define(globalThis, "TextDecoder", TextDecoder);

  // ---- structuredClone

  const cloneError = (what) => new DOMException(`${what} could not be cloned`, "DataCloneError");
  const ERRORS = { Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };

  // An object of the same kind, still empty; undefined for a plain object or an array.
  function cloneBuiltin(value, copy) {
    if (value instanceof Date) return new Date(value.getTime());
    if (value instanceof RegExp) return new RegExp(value.source, value.flags);
    if (value instanceof ArrayBuffer) return value.slice(0);
    if (ArrayBuffer.isView(value)) {
      const buffer = copy(value.buffer);
      return value instanceof DataView ? new DataView(buffer, value.byteOffset, value.byteLength)
        : new value.constructor(buffer, value.byteOffset, value.length);
    }
    if (value instanceof Number || value instanceof String || value instanceof Boolean) return Object(value.valueOf());
    if (kit.isError(value)) {
      const error = new (ERRORS[value.name] ?? Error)(value.message);
      define(error, "stack", value.stack);
      return error;
    }
    return undefined;
  }

  define(globalThis, "structuredClone", function structuredClone(value) {
    const copies = new Map();
    const copy = (original) => {
      if (typeof original === "symbol" || typeof original === "function") throw cloneError(kit.inspect(original));
      if (typeof original !== "object" || original === null) return original;
      if (copies.has(original)) return copies.get(original);
      if (host.promiseState(original) !== undefined || original instanceof WeakMap || original instanceof WeakSet) {
        throw cloneError(kit.inspect(original));
      }
      const builtin = cloneBuiltin(original, copy);
      if (builtin !== undefined) {
        copies.set(original, builtin);
        if (kit.isError(original) && original.cause !== undefined) define(builtin, "cause", copy(original.cause));
        return builtin;
      }
      const result = original instanceof Map ? new Map() : original instanceof Set ? new Set() : Array.isArray(original) ? new Array(original.length) : {};
      copies.set(original, result);
      if (result instanceof Map) for (const [key, item] of [...original]) result.set(copy(key), copy(item));
      else if (result instanceof Set) for (const item of [...original]) result.add(copy(item));
      else for (const key of Object.keys(original)) result[key] = copy(original[key]);
      return result;
    };
    return copy(value);
  });

  // ---- crypto and performance

  const INTEGER_ARRAYS = [Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array, BigInt64Array, BigUint64Array];
  const QUOTA_BYTES = 65536;
  define(globalThis, "crypto", {
    getRandomValues(array) {
      if (!INTEGER_ARRAYS.some((kind) => array instanceof kind)) throw new DOMException("an array of integers is needed", "TypeMismatchError");
      if (array.byteLength > QUOTA_BYTES) throw new DOMException(`more than ${QUOTA_BYTES} bytes`, "QuotaExceededError");
      host.fillRandom(array);
      return array;
    },
    randomUUID() {
      const bytes = new Uint8Array(16);
      host.fillRandom(bytes);
      bytes[6] = (bytes[6] & 0x0f) | 0x40;
      bytes[8] = (bytes[8] & 0x3f) | 0x80;
      const hex = bytes.toHex();
      return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
    },
  });
  define(globalThis, "performance", {
    now: () => host.now(),
    get timeOrigin() {
      return Date.now() - host.now();
    },
  });
  define(globalThis, "setImmediate", (task, ...values) => setTimeout(task, 0, ...values));
  define(globalThis, "clearImmediate", (id) => clearTimeout(id));

  // ---- process

  let environment;
  // Read when it is first looked at: most cells never do.
  Object.defineProperty(kit, "environment", {
    get() {
      if (environment === undefined) {
        environment = {};
        kit.configure();
      }
      return environment;
    },
  });
  // The session has changed: the same object, since a cell may hold it.
  kit.configure = () => {
    for (const name of Object.keys(environment)) delete environment[name];
    const flat = host.environment();
    for (let i = 0; i < flat.length; i += 2) environment[flat[i]] = flat[i + 1];
  };

  const hrtime = (since) => {
    const now = host.now() * 1e6;
    const seconds = Math.floor(now / 1e9);
    const rest = Math.floor(now % 1e9);
    if (since === undefined) return [seconds, rest];
    const difference = (seconds - since[0]) * 1e9 + rest - since[1];
    return [Math.floor(difference / 1e9), difference % 1e9];
  };
  define(hrtime, "bigint", () => BigInt(Math.floor(host.now() * 1e6)));

  define(globalThis, "process", {
    argv: ["cellar"],
    platform: "wasi",
    arch: "wasm32",
    pid: 1,
    version: "v0.0.0",
    versions: { quickjs: "0.18.0" },
    exitCode: undefined,
    get env() {
      return kit.environment;
    },
    cwd: () => host.workingDirectory(),
    exit: (status) => host.exit(status ?? globalThis.process.exitCode ?? 0),
    hrtime,
    uptime: () => host.now() / 1e3,
    nextTick: (task, ...values) => queueMicrotask(() => task(...values)),
    memoryUsage: () => {
      const bytes = host.memoryBytes();
      return { rss: bytes, heapTotal: bytes, heapUsed: bytes, external: 0, arrayBuffers: 0 };
    },
    stdout: { isTTY: false, write: (text) => (host.write(0, String(text)), true) },
    stderr: { isTTY: false, write: (text) => (host.write(1, String(text)), true) },
  });

  // ---- fetch, as far as a plain request goes

  function headerList(headers) {
    if (headers === undefined || headers === null) return [];
    const pairs = typeof headers[Symbol.iterator] === "function" ? [...headers] : Object.entries(headers);
    return pairs.flatMap(([name, value]) => [String(name), String(value)]);
  }

  function responseOf(answer) {
    const headers = new Map();
    for (let i = 0; i < answer.headers.length; i += 2) headers.set(answer.headers[i].toLowerCase(), answer.headers[i + 1]);
    return {
      status: answer.status,
      ok: answer.status >= 200 && answer.status < 300,
      url: answer.url,
      headers: { get: (name) => headers.get(String(name).toLowerCase()) ?? null, has: (name) => headers.has(String(name).toLowerCase()), entries: () => headers.entries(), [Symbol.iterator]: () => headers.entries() },
      bytes: async () => answer.body,
      arrayBuffer: async () => answer.body.slice().buffer,
      text: async () => kit.decode(answer.body),
      json: async () => JSON.parse(kit.decode(answer.body)),
    };
  }

  define(globalThis, "fetch", async function fetch(url, options) {
    const { method = "GET", headers, body } = options ?? {};
    const data = body === undefined || body === null ? undefined : typeof body === "string" ? host.encodeText(body) : viewOf(body);
    try {
      return responseOf(await kit.request(String(method).toUpperCase(), String(url), headerList(headers), data));
    } catch (error) {
      throw new TypeError(`fetch failed: ${error.message}`, { cause: error });
    }
  });
})
