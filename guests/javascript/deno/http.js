// node:http and node:https, as far as one request and its answer go: each is a call of the host, as `fetch` is, or of a server
// in this kernel. The answer is there whole before it is read, no redirect is followed, and what is packed stays so, as in Node.
const { Buffer } = require("deno/deno_node/internal/buffer.js");
const { Readable, Writable } = kit.requireBuiltin("stream");
const { EventEmitter } = kit.requireBuiltin("events");
const STATUS_CODES = require("deno/status_codes.js");
const { NETWORK, SERVER, hollow } = require("deno/refusing.js");
const { make } = require("deno/http_server.js");

const METHODS = ("ACL BIND CHECKOUT CONNECT COPY DELETE GET HEAD LINK LOCK M-SEARCH MERGE MKACTIVITY MKCALENDAR MKCOL MOVE NOTIFY OPTIONS PATCH " +
  "POST PROPFIND PROPPATCH PURGE PUT QUERY REBIND REPORT SEARCH SOURCE SUBSCRIBE TRACE UNBIND UNLINK UNLOCK UNSUBSCRIBE").split(" ");
const TOKEN = /^[\^_`a-zA-Z\-0-9!#$%&'*+.|~]+$/;
// Bytes of an answer that are handed on at a time.
const PIECE_BYTES = 64 << 10;
// Headers of which the first counts when there are several; others are put together.
const ONCE = new Set(("age authorization content-length content-type etag expires from host if-modified-since if-unmodified-since last-modified " +
  "location max-forwards proxy-authorization referer retry-after server user-agent").split(" "));
// What a failed call of the host is to programs that look at codes.
const CODES = { denied: "EACCES", cancelled: "ECONNRESET", failed: "ECONNRESET", invalid: "ERR_INVALID_ARG_VALUE", limit: "EMSGSIZE" };

const coded = (Class, code, message) => Object.assign(new Class(message), { code });

function validateHeaderName(name) {
  if (typeof name === "string" && TOKEN.test(name)) return;
  throw coded(TypeError, "ERR_INVALID_HTTP_TOKEN", `Header name must be a valid HTTP token ["${name}"]`);
}

function validateHeaderValue(name, value) {
  if (value === undefined) throw coded(TypeError, "ERR_HTTP_INVALID_HEADER_VALUE", `Invalid value "undefined" for header "${name}"`);
  if (/[^\t\x20-\x7e\x80-\xff]/.test(String(value))) throw coded(TypeError, "ERR_INVALID_CHAR", `Invalid character in header content ["${name}"]`);
}

class IncomingMessage extends Readable {
  constructor(status, pairs, body, request) {
    let at = 0;
    super({
      read() {
        if (at < body.length) this.push(Buffer.from(body.buffer, body.byteOffset + at, Math.min(PIECE_BYTES, body.length - at)));
        at += PIECE_BYTES;
        if (at >= body.length) {
          this.complete = true;
          this.push(null);
        }
      },
    });
    const headers = {};
    const headersDistinct = { __proto__: null };
    for (let i = 0; i < pairs.length; i += 2) {
      const name = pairs[i].toLowerCase();
      const value = pairs[i + 1];
      (headersDistinct[name] ??= []).push(value);
      if (name === "set-cookie") (headers[name] ??= []).push(value);
      else if (!Object.hasOwn(headers, name)) headers[name] = value;
      else if (!ONCE.has(name)) headers[name] += `${name === "cookie" ? "; " : ", "}${value}`;
    }
    Object.assign(this, {
      statusCode: status, statusMessage: STATUS_CODES[status] ?? "", headers, headersDistinct, rawHeaders: pairs, trailers: {}, rawTrailers: [],
      httpVersion: "1.1", httpVersionMajor: 1, httpVersionMinor: 1, url: "", method: null, complete: false, aborted: false, socket: request.socket, req: request,
    });
  }
  get connection() {
    return this.socket;
  }
  setTimeout(milliseconds, callback) {
    if (callback) this.once("timeout", callback);
    return this;
  }
}

// Headers that go out, by name in small letters: the name as it was given, and the value.
class OutgoingMessage extends Writable {
  #headers = new Map();
  headersSent = false;
  finished = false;
  setHeader(name, value) {
    if (this.headersSent) throw coded(Error, "ERR_HTTP_HEADERS_SENT", "Cannot set headers after they are sent to the client");
    validateHeaderName(name);
    for (const one of [value].flat()) validateHeaderValue(name, one);
    this.#headers.set(name.toLowerCase(), [name, value]);
    return this;
  }
  appendHeader(name, value) {
    const before = this.getHeader(name);
    return this.setHeader(name, before === undefined ? value : [before, value].flat());
  }
  setHeaders(headers) {
    for (const [name, value] of headers) this.setHeader(name, value);
    return this;
  }
  getHeader(name) {
    return this.#headers.get(String(name).toLowerCase())?.[1];
  }
  hasHeader(name) {
    return this.#headers.has(String(name).toLowerCase());
  }
  removeHeader(name) {
    if (this.headersSent) throw coded(Error, "ERR_HTTP_HEADERS_SENT", "Cannot remove headers after they are sent to the client");
    this.#headers.delete(String(name).toLowerCase());
  }
  getHeaderNames() {
    return [...this.#headers.keys()];
  }
  getRawHeaderNames() {
    return [...this.#headers.values()].map(([name]) => name);
  }
  getHeaders() {
    return Object.assign(Object.create(null), Object.fromEntries([...this.#headers].map(([name, [, value]]) => [name, value])));
  }
  flushHeaders() {}
}

// Options as `request` takes them, of an address.
function optionsOf(url) {
  const { protocol, hostname, port, pathname, search, username, password, href } = url;
  const auth = username || password ? { auth: `${decodeURIComponent(username)}:${decodeURIComponent(password)}` } : {};
  return { protocol, hostname: hostname.replace(/^\[(.*)\]$/, "$1"), path: `${pathname}${search}`, href, ...(port === "" ? {} : { port: Number(port) }), ...auth };
}

function readArguments(given) {
  const [first, ...rest] = given;
  const address = typeof first === "string" ? optionsOf(new URL(first)) : first instanceof URL ? optionsOf(first) : undefined;
  const options = { ...address, ...(address === undefined ? first : typeof rest[0] === "object" ? rest.shift() : undefined) };
  const callback = rest.find((one) => typeof one === "function");
  return { options, callback };
}

class ClientRequest extends OutgoingMessage {
  #url;
  #giveUp;
  #timer;
  #body = [];
  aborted = false;
  reusedSocket = false;
  res = null;
  // What programs tell a connection about has no meaning here.
  socket = Object.assign(new EventEmitter(), {
    encrypted: false, setKeepAlive() {}, setNoDelay() {}, setTimeout() {}, ref() {}, unref() {}, destroy: () => this.destroy(), remoteAddress: undefined,
  });

  constructor(scheme, ...given) {
    super({ autoDestroy: false, decodeStrings: true });
    const { options, callback } = readArguments(given);
    const { protocol = scheme, hostname = options.host ?? "localhost", path = "/", method = "GET", headers, timeout, signal } = options;
    if (protocol !== scheme) throw coded(TypeError, "ERR_INVALID_PROTOCOL", `Protocol "${protocol}" not supported. Expected "${scheme}"`);
    if (/[^\u0021-\u00ff]/.test(path)) throw coded(TypeError, "ERR_UNESCAPED_CHARACTERS", "Request path contains unescaped characters");
    if (!TOKEN.test(method)) throw coded(TypeError, "ERR_INVALID_HTTP_TOKEN", `Method must be a valid HTTP token ["${method}"]`);
    const port = options.port === undefined || options.port === null || options.port === "" ? "" : `:${options.port}`;
    const place = `${String(hostname).includes(":") && !String(hostname).startsWith("[") ? `[${hostname}]` : hostname}`;
    Object.assign(this, { method: method.toUpperCase(), path, protocol, host: hostname, agent: options.agent });
    this.#url = `${protocol}//${place}${port}${path}`;
    if (Array.isArray(headers)) for (let i = 0; i < headers.length; i += 2) this.appendHeader(headers[i], headers[i + 1]);
    else for (const [name, value] of Object.entries(headers ?? {})) if (value !== undefined) this.setHeader(name, value);
    if (options.auth && !this.hasHeader("authorization")) this.setHeader("Authorization", `Basic ${Buffer.from(options.auth).toString("base64")}`);
    if (callback) this.once("response", callback);
    if (timeout > 0) this.setTimeout(timeout);
    if (signal !== undefined) this.#obey(signal);
    process.nextTick(() => this.emit("socket", this.socket));
  }

  #obey(signal) {
    const abort = () => this.destroy(coded(class AbortError extends Error {
      name = "AbortError";
    }, "ABORT_ERR", "The operation was aborted"));
    if (signal.aborted) process.nextTick(abort);
    else signal.addEventListener("abort", abort, { once: true });
  }

  get connection() {
    return this.socket;
  }

  _write(chunk, encoding, done) {
    this.#body.push(chunk);
    done();
  }

  end(...given) {
    this.finished = true;
    return super.end(...given);
  }

  // All is written: the request is sent.
  _final(done) {
    this.headersSent = true;
    const list = [];
    for (const [name, value] of Object.entries(this.getHeaders())) for (const one of [value].flat()) list.push(name, String(one));
    const body = this.#body.length > 0 ? Buffer.concat(this.#body) : undefined;
    this.#body = [];
    const { answer, giveUp } = kit.request(this.method, this.#url, list, body);
    this.#giveUp = giveUp;
    answer.then((found) => this.#answer(found), (error) => this.#fail(error));
    done();
  }

  #answer({ status, headers, body }) {
    this.#giveUp = undefined;
    clearTimeout(this.#timer);
    if (this.destroyed) return;
    const response = new IncomingMessage(status, headers, this.method === "HEAD" ? new Uint8Array(0) : body, this);
    this.res = response;
    response.once("close", () => {
      if (!this.destroyed) super.destroy();
    });
    // As in Node, an answer that nobody wants is thrown away.
    if (!this.emit("response", response)) response.resume();
  }

  #fail(cause) {
    this.#giveUp = undefined;
    const error = Object.assign(new Error(cause.message, { cause }), { code: CODES[cause.kind] ?? "ECONNRESET", syscall: "request", hostname: this.host });
    // Where the request was sent, and not where its failure was heard of.
    const frames = cause.stack.slice(`${cause.name}: ${cause.message}`.length);
    Object.defineProperty(error, "stack", { value: `Error: ${cause.message}${frames}`, writable: true, configurable: true });
    if (!this.destroyed) super.destroy(error);
  }

  setTimeout(milliseconds, callback) {
    if (callback) this.once("timeout", callback);
    clearTimeout(this.#timer);
    if (milliseconds > 0) this.#timer = setTimeout(() => this.emit("timeout"), milliseconds);
    return this;
  }
  setNoDelay() {}
  setSocketKeepAlive() {}

  abort() {
    if (this.aborted) return;
    this.aborted = true;
    process.nextTick(() => this.emit("abort"));
    this.destroy();
  }

  destroy(error) {
    if (this.destroyed) return this;
    clearTimeout(this.#timer);
    this.#giveUp?.();
    this.res?.destroy(error);
    return super.destroy(error ?? (this.res === null ? coded(Error, "ECONNRESET", "socket hang up") : undefined));
  }
}

// Packages make these while they are loaded, for requests that they may never send.
class Agent extends EventEmitter {
  constructor(options) {
    super();
    Object.assign(this, { options: { ...options }, requests: {}, sockets: {}, freeSockets: {}, maxSockets: options?.maxSockets ?? Infinity });
  }
  createConnection() {
    throw kit.unsupported("http.Agent.createConnection", NETWORK);
  }
  destroy() {}
}

function moduleOf(scheme, own) {
  const request = (...given) => new ClientRequest(scheme, ...given);
  const get = (...given) => {
    const made = request(...given);
    made.end();
    return made;
  };
  const globalAgent = new Agent({ keepAlive: true, scheduling: "lifo", timeout: 5000 });
  return { ...own, Agent, globalAgent, get, request };
}

// `new http.ClientRequest(...)` is of `http:` unless its options say otherwise.
class HttpRequest extends ClientRequest {
  constructor(...given) {
    super(readArguments(given).options.protocol ?? "http:", ...given);
  }
  static [Symbol.hasInstance](value) {
    return value instanceof ClientRequest;
  }
}
Object.defineProperty(HttpRequest, "name", { value: "ClientRequest" });

module.exports = {
  http: moduleOf("http:", {
    ...make(IncomingMessage, OutgoingMessage), ClientRequest: HttpRequest, IncomingMessage, METHODS, OutgoingMessage, STATUS_CODES,
    maxHeaderSize: 16384, setMaxIdleHTTPParsers() {}, validateHeaderName, validateHeaderValue,
  }),
  https: moduleOf("https:", hollow("https", SERVER, "Server createServer")),
};
