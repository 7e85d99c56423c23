// node:http and node:https, as far as one request and its answer go: each is a call of the host, as `fetch` is, or of a server
// in this kernel. What the host answers is there whole before it is read, no redirect is followed, and what is packed stays so, as in Node.
const { Buffer } = require("deno/deno_node/internal/buffer.js");
const { EventEmitter } = kit.requireBuiltin("events");
const STATUS_CODES = require("deno/network/status_codes.js");
const { NETWORK, SERVER, hollow } = require("deno/runtime/refusing.js");
const { IncomingMessage, OutgoingMessage, Pipe, TOKEN, validateHeaderName, validateHeaderValue } = require("deno/network/http_messages.js");
const { Server, ServerResponse, askBySocket, createServer, hangUp, serverOf } = require("deno/network/http_server.js");
const net = require("deno/network/net.js");
const { coded } = require("deno/network/ports.js");

const METHODS = ("ACL BIND CHECKOUT CONNECT COPY DELETE GET HEAD LINK LOCK M-SEARCH MERGE MKACTIVITY MKCALENDAR MKCOL MOVE NOTIFY OPTIONS PATCH " +
  "POST PROPFIND PROPPATCH PURGE PUT QUERY REBIND REPORT SEARCH SOURCE SUBSCRIBE TRACE UNBIND UNLINK UNLOCK UNSUBSCRIBE").split(" ");
// What a failed call of the host is to programs that look at codes.
const CODES = { denied: "EACCES", cancelled: "ECONNRESET", failed: "ECONNRESET", invalid: "ERR_INVALID_ARG_VALUE", limit: "EMSGSIZE" };

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
  #connect; // makes the socket, where a program does that itself
  #giveUp;
  #timer;
  aborted = false;
  reusedSocket = false;
  res = null;
  // What programs tell a connection about has no meaning here.
  socket = Object.assign(new EventEmitter(), {
    encrypted: false, setKeepAlive() {}, setNoDelay() {}, setTimeout() {}, ref() {}, unref() {}, destroy: () => this.destroy(), remoteAddress: undefined,
  });

  constructor(scheme, ...given) {
    super();
    const { options, callback } = readArguments(given);
    const { protocol = scheme, hostname = options.host ?? "localhost", path = "/", method = "GET", headers, timeout, signal } = options;
    if (protocol !== scheme) throw coded("ERR_INVALID_PROTOCOL", `Protocol "${protocol}" not supported. Expected "${scheme}"`, {}, TypeError);
    if (/[^\u0021-\u00ff]/.test(path)) throw coded("ERR_UNESCAPED_CHARACTERS", "Request path contains unescaped characters", {}, TypeError);
    if (!TOKEN.test(method)) throw coded("ERR_INVALID_HTTP_TOKEN", `Method must be a valid HTTP token ["${method}"]`, {}, TypeError);
    const port = options.port === undefined || options.port === null || options.port === "" ? "" : `:${options.port}`;
    const place = `${String(hostname).includes(":") && !String(hostname).startsWith("[") ? `[${hostname}]` : hostname}`;
    Object.assign(this, { method: method.toUpperCase(), path, protocol, host: hostname, agent: options.agent });
    this.#connect = options.createConnection && (() => options.createConnection({ ...options, host: hostname, port: Number(options.port || 80) }));
    this.#url = `${protocol}//${place}${port}${path}`;
    this.takeHeaders(headers);
    if (options.auth && !this.hasHeader("authorization")) this.setHeader("Authorization", `Basic ${Buffer.from(options.auth).toString("base64")}`);
    if (callback) this.once("response", callback);
    if (timeout > 0) this.setTimeout(timeout);
    if (signal !== undefined) this.#obey(signal);
    process.nextTick(() => this.emit("socket", this.socket));
  }

  #obey(signal) {
    const abort = () => this.destroy(coded("ABORT_ERR", "The operation was aborted", { name: "AbortError" }));
    if (signal.aborted) process.nextTick(abort);
    else signal.addEventListener("abort", abort, { once: true });
  }

  get connection() {
    return this.socket;
  }

  // A request that changes the protocol goes by a socket of this kernel.
  #ask(headers, body) {
    const isBySocket = this.#connect !== undefined || this.method === "CONNECT" || this.hasHeader("upgrade");
    if (!isBySocket) return kit.request(this.method, this.#url, headers, body);
    const { hostname, port } = new URL(this.#url);
    return askBySocket(this.#connect?.() ?? net.connect({ host: hostname, port: Number(port || 80) }), this.method, this.#url, headers, body);
  }

  // A server of this kernel is given the body piece by piece; the host has it whole.
  _send() {
    const headers = this.headerPairs();
    const ask = (body) => {
      const { answer, giveUp } = this.#ask(headers, body);
      this.#giveUp = giveUp;
      answer.then((found) => this.#answer(found), (error) => this.#fail(error));
    };
    if (serverOf(this.#url) !== undefined && this.bodyLength !== 0) {
      const pipe = new Pipe();
      if (this.bodyLength !== undefined && !this.hasHeader("content-length")) headers.push("Content-Length", String(this.bodyLength));
      else if (this.bodyLength === undefined && !this.hasHeader("content-length")) headers.push("Transfer-Encoding", "chunked");
      ask(pipe.readable);
      return pipe;
    }
    const pieces = [];
    return {
      write(piece, done) {
        pieces.push(piece);
        done();
      },
      end: () => ask(pieces.length > 0 ? Buffer.concat(pieces) : undefined),
    };
  }

  #answer({ status, statusMessage, headers, body, socket, head }) {
    this.#giveUp = undefined;
    clearTimeout(this.#timer);
    if (this.destroyed) return void socket?.destroy();
    const response = new IncomingMessage(status, headers, this.method === "HEAD" ? new Uint8Array(0) : body, this);
    if (statusMessage !== undefined) response.statusMessage = statusMessage;
    this.res = response;
    if (socket !== undefined) {
      this.socket = response.socket = socket;
      if (!this.emit(this.method === "CONNECT" ? "connect" : "upgrade", response, socket, head)) socket.destroy();
      return void super.destroy();
    }
    response.once("close", () => {
      if (!this.destroyed) super.destroy();
    });
    // As in Node, an answer that nobody wants is thrown away.
    if (!this.emit("response", response)) response.resume();
  }

  #fail(cause) {
    this.#giveUp = undefined;
    // Of a server of this kernel, or of there being none.
    if (cause.kind === undefined) return void (this.destroyed || super.destroy(cause));
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
    return super.destroy(error ?? (this.res === null ? hangUp() : undefined));
  }
}

// Packages make these while they are loaded, for requests that they may never send.
class Agent extends EventEmitter {
  constructor(options) {
    super();
    const { keepAlive = false, keepAliveMsecs = 1000, maxFreeSockets = 256, maxSockets = Infinity, maxTotalSockets = Infinity, scheduling = "lifo" } = options ?? {};
    Object.assign(this, {
      defaultPort: 80, protocol: "http:", options: { ...options }, requests: {}, sockets: {}, freeSockets: {}, keepAliveMsecs, keepAlive, maxSockets,
      maxFreeSockets, scheduling, maxTotalSockets, totalSocketCount: 0,
    });
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
    Server, ServerResponse, createServer, ClientRequest: HttpRequest, IncomingMessage, METHODS, OutgoingMessage, STATUS_CODES,
    maxHeaderSize: 16384, setMaxIdleHTTPParsers() {}, validateHeaderName, validateHeaderValue,
  }),
  https: moduleOf("https:", hollow("https", SERVER, "Server createServer")),
};
