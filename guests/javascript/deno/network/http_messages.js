// Messages of node:http: those that come, as streams to read, and those that go out, as streams to write.
const { Buffer } = require("deno/deno_node/internal/buffer.js");
const { Readable, Writable } = kit.requireBuiltin("stream");
const STATUS_CODES = require("deno/network/status_codes.js");
const { coded } = require("deno/network/ports.js");

const TOKEN = /^[\^_`a-zA-Z\-0-9!#$%&'*+.|~]+$/;
// Bytes of a body that are handed on at a time.
const PIECE_BYTES = 64 << 10;
// Headers of which the first counts when there are several; others are put together.
const ONCE = new Set(("age authorization content-length content-type etag expires from host if-modified-since if-unmodified-since last-modified " +
  "location max-forwards proxy-authorization referer retry-after server user-agent").split(" "));

function validateHeaderName(name) {
  if (typeof name === "string" && TOKEN.test(name)) return;
  throw coded("ERR_INVALID_HTTP_TOKEN", `Header name must be a valid HTTP token ["${name}"]`, {}, TypeError);
}

function validateHeaderValue(name, value) {
  if (value === undefined) throw coded("ERR_HTTP_INVALID_HEADER_VALUE", `Invalid value "undefined" for header "${name}"`, {}, TypeError);
  if (/[^\t\x20-\x7e\x80-\xff]/.test(String(value))) throw coded("ERR_INVALID_CHAR", `Invalid character in header content ["${name}"]`, {}, TypeError);
}

// A message that comes. Its body is bytes, or a stream of them.
class IncomingMessage extends Readable {
  #body;
  #at = 0;
  #flows = false;

  constructor(status, pairs, body, request) {
    super();
    this.#body = body;
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

  _read() {
    const body = this.#body;
    if (!(body instanceof Uint8Array)) return this.#pull(body);
    if (this.#at < body.length) this.push(Buffer.from(body.buffer, body.byteOffset + this.#at, Math.min(PIECE_BYTES, body.length - this.#at)));
    this.#at += PIECE_BYTES;
    if (this.#at >= body.length) this.#finish();
  }
  #pull(body) {
    if (this.#flows) return void body.resume();
    this.#flows = true;
    body.on("data", (piece) => {
      if (!this.push(piece)) body.pause();
    });
    body.once("end", () => this.#finish());
    body.once("close", () => {
      if (this.complete || this.destroyed) return;
      this.aborted = true;
      this.emit("aborted");
      this.destroy(coded("ECONNRESET", "aborted"));
    });
    body.on("error", () => {});
  }
  #finish() {
    this.complete = true;
    this.push(null);
  }
  _destroy(error, done) {
    if (!this.complete && !(this.#body instanceof Uint8Array)) this.#body.destroy();
    done(error);
  }

  get connection() {
    return this.socket;
  }
  setTimeout(milliseconds, callback) {
    if (callback) this.once("timeout", callback);
    return this;
  }
}

// What is written on one side and read on the other, one waiting for the other.
class Pipe {
  #more;
  readable = new Readable({
    read: () => {
      const more = this.#more;
      this.#more = undefined;
      more?.();
    },
  });
  write(piece, done) {
    if (this.readable.destroyed) return done(coded("ERR_STREAM_DESTROYED", "Cannot call write after a stream was destroyed"));
    if (this.readable.push(piece)) done();
    else this.#more = done;
  }
  end() {
    if (!this.readable.destroyed) this.readable.push(null);
  }
}

// A message that goes out. `_send`, of the classes below, is called once, when the first piece of its body or its end is
// there, and returns what takes its body: an object with `write` and `end`.
class OutgoingMessage extends Writable {
  // By name in small letters: the name as it was given, and the value.
  #headers = new Map();
  #sink;
  headersSent = false;
  finished = false;
  // The size of the body, when it was given at once with the end.
  bodyLength = undefined;

  constructor() {
    super({ autoDestroy: false, decodeStrings: true });
  }

  setHeader(name, value) {
    if (this.headersSent) throw coded("ERR_HTTP_HEADERS_SENT", "Cannot set headers after they are sent to the client");
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
    if (this.headersSent) throw coded("ERR_HTTP_HEADERS_SENT", "Cannot remove headers after they are sent to the client");
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
  // Takes headers as `writeHead` and `request` do: as an object, or as a list of names and values.
  takeHeaders(headers) {
    if (Array.isArray(headers)) for (let i = 0; i < headers.length; i += 2) this.appendHeader(headers[i], headers[i + 1]);
    else for (const [name, value] of Object.entries(headers ?? {})) if (value !== undefined) this.setHeader(name, value);
  }
  // Names and values in turn, as they are sent.
  headerPairs() {
    return [...this.#headers.values()].flatMap(([name, value]) => [value].flat().flatMap((one) => [name, String(one)]));
  }

  get #open() {
    this.headersSent = true;
    return (this.#sink ??= this._send());
  }
  flushHeaders() {
    this.#open;
  }
  _write(piece, encoding, done) {
    this.#open.write(piece, done);
  }
  _final(done) {
    this.#open.end();
    done();
  }
  end(...given) {
    const [piece, encoding] = given;
    if (this.#sink === undefined && this.writableLength === 0 && !this.finished) {
      const isBody = piece !== undefined && piece !== null && typeof piece !== "function";
      this.bodyLength = isBody ? Buffer.byteLength(piece, typeof encoding === "string" ? encoding : undefined) : 0;
    }
    this.finished = true;
    return super.end(...given);
  }
}

module.exports = { IncomingMessage, OutgoingMessage, Pipe, TOKEN, validateHeaderName, validateHeaderValue };
