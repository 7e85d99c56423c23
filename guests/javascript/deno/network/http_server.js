// Servers of node:http that answer the requests of their own kernel: `fetch` and `http.request` to this machine's own address
// reach them without the host, and sockets of node:net do. Nothing else can connect to them, and nothing listens anywhere.
const { EventEmitter } = kit.requireBuiltin("events");
const net = require("deno/network/net.js");
const STATUS_CODES = require("deno/network/status_codes.js");
const { IncomingMessage, OutgoingMessage, Pipe } = require("deno/network/http_messages.js");
const { ask, serve } = require("deno/network/http_wire.js");
const { coded, connections, failed, find, isLocal, settle, wasServed } = require("deno/network/ports.js");

// The port that connections come from, where it means nothing.
const CLIENT_PORT = 65535;

const hangUp = () => coded("ECONNRESET", "socket hang up");

// The server that an address leads to, if any of this kernel does: of node:http, or of node:net.
function serverOf(url) {
  const { protocol, hostname, port } = new URL(url);
  return protocol === "http:" && isLocal(hostname) ? find(Number(port || 80)) : undefined;
}

// Takes what is written and keeps none of it: the body of an answer that has none.
const nothing = { write: (_, done) => done(), end() {} };

class ServerResponse extends OutgoingMessage {
  #answer;
  #body;
  statusCode = 200;
  statusMessage = undefined;
  sendDate = true;

  constructor(request, answer = () => {}) {
    super();
    this.#answer = answer;
    Object.assign(this, { req: request, socket: request.socket });
  }

  get connection() {
    return this.socket;
  }

  writeHead(status, ...rest) {
    if (!Number.isInteger(status) || status < 100 || status > 999) throw coded("ERR_HTTP_INVALID_STATUS_CODE", `Invalid status code: ${status}`, {}, RangeError);
    if (this.headersSent) throw coded("ERR_HTTP_HEADERS_SENT", "Cannot write headers after they are sent to the client");
    this.statusCode = status;
    if (typeof rest[0] === "string") this.statusMessage = rest.shift();
    this.takeHeaders(rest[0]);
    this.headersSent = true;
    return this;
  }
  writeContinue() {}
  writeEarlyHints() {}
  writeProcessing() {}

  _send() {
    const isBare = this.req.method === "HEAD" || this.statusCode === 204 || this.statusCode === 304;
    const headers = this.headerPairs();
    if (this.sendDate && !this.hasHeader("date")) headers.push("Date", new Date().toUTCString());
    if (!this.hasHeader("connection")) headers.push(...(/\bclose\b/i.test(this.req.headers.connection) ? ["Connection", "close"] : ["Connection", "keep-alive", "Keep-Alive", "timeout=5"]));
    if (!isBare && !this.hasHeader("content-length") && !this.hasHeader("transfer-encoding")) {
      if (this.bodyLength === undefined) headers.push("Transfer-Encoding", "chunked");
      else headers.push("Content-Length", String(this.bodyLength));
    }
    this.statusMessage ??= STATUS_CODES[this.statusCode] ?? "unknown";
    const pipe = isBare ? undefined : new Pipe();
    this.#body = pipe?.readable;
    // Who no longer reads has gone.
    this.#body?.once("close", () => {
      if (!this.writableFinished && !this.destroyed) this.destroy();
    });
    this.#answer({ status: this.statusCode, statusMessage: this.statusMessage, headers, body: this.#body ?? new Uint8Array(0) });
    return pipe ?? nothing;
  }
  _destroy(error, done) {
    if (!this.writableFinished) this.#body?.destroy();
    done(error);
  }
}

// A request as its server sees it.
const meet = (method, target, pairs, socket, body = new Uint8Array(0)) =>
  Object.assign(new IncomingMessage(null, pairs, body, { socket }), { method, url: target, req: undefined, statusMessage: null });

class Server extends net.Server {
  #answers = new Set(); // those that need no socket
  #connections = new Set();
  timeout = 0;
  keepAliveTimeout = 5000;
  headersTimeout = 60000;
  requestTimeout = 300000;
  maxHeadersCount = null;
  maxRequestsPerSocket = 0;

  constructor(...given) {
    super({ ...given.find((one) => typeof one === "object"), allowHalfOpen: true });
    const listener = given.find((one) => typeof one === "function");
    if (listener) this.on("request", listener);
    this.on("connection", (socket) => {
      const connection = serve(socket, this, (...request) => this.#take(...request), meet);
      this.#connections.add(connection);
      socket.once("close", () => this.#connections.delete(connection));
    });
  }

  [connections]() {
    return super[connections]() + this.#answers.size;
  }
  close(callback) {
    if (this.listening) this.closeIdleConnections();
    return super.close(callback);
  }
  closeAllConnections() {
    for (const answer of this.#answers) answer.destroy();
    for (const { socket } of this.#connections) socket.destroy();
  }
  closeIdleConnections() {
    for (const { socket, isBusy } of this.#connections) if (!isBusy) socket.destroy();
  }
  setTimeout(milliseconds, callback) {
    if (callback) this.on("timeout", callback);
    return this;
  }

  // One request, as `kit.request` has it, with a body of bytes or a stream: its answer, of which the body may be a stream too,
  // and what gives it up.
  take(method, url, headers, body) {
    const { host, pathname, search } = new URL(url);
    const pairs = [...headers];
    const names = new Set(pairs.filter((_, i) => i % 2 === 0).map((name) => name.toLowerCase()));
    if (!names.has("host")) pairs.unshift("Host", host);
    if (!names.has("connection")) pairs.push("Connection", "keep-alive");
    const content = body ?? new Uint8Array(0);
    if (content.length > 0 && !names.has("content-length")) pairs.push("Content-Length", String(content.length));
    const socket = Object.assign(new EventEmitter(), {
      remoteAddress: "127.0.0.1", remoteFamily: "IPv4", remotePort: CLIENT_PORT, localAddress: "127.0.0.1", localPort: this.address()?.port, encrypted: false,
      setTimeout() {}, setKeepAlive() {}, setNoDelay() {}, ref() {}, unref() {}, destroy: () => taken.giveUp(),
    });
    const taken = this.#take(method, `${pathname}${search}`, pairs, content, socket);
    this.#answers.add(taken.response);
    taken.response.once("close", () => {
      this.#answers.delete(taken.response);
      this[settle]();
    });
    return taken;
  }

  #take(method, target, pairs, body, socket) {
    const request = meet(method, target, pairs, socket, body);
    let response;
    const answer = new Promise((resolve, reject) => {
      response = new ServerResponse(request, resolve);
      response.once("finish", () => process.nextTick(() => response.emit("close")));
      response.once("close", () => reject(hangUp()));
      setImmediate(() => {
        try {
          if (!this.emit("request", request, response)) response.end();
        } catch (error) {
          reject(hangUp());
          throw error;
        }
      });
    });
    const giveUp = () => {
      if (response.writableFinished) return;
      request.aborted = true;
      request.emit("aborted");
      request.destroy();
      response.destroy();
    };
    return { answer, giveUp, request, response };
  }
}

// Asks by a socket, where there is no server of node:http or the protocol is to change.
function askBySocket(socket, method, url, headers, body) {
  const { host, pathname, search } = new URL(url);
  const has = (name) => headers.some((one, i) => i % 2 === 0 && one.toLowerCase() === name);
  const length = body instanceof Uint8Array && !has("content-length") ? ["Content-Length", String(body.length)] : [];
  return ask(socket, method, `${pathname}${search}`, [...(has("host") ? [] : ["Host", host]), ...headers, ...length, ...(has("connection") ? [] : ["Connection", "close"])], body);
}

// Requests to this kernel's own servers go to them. Where one listened and does no more, a request is refused in Node's words;
// what else is not granted, in the host's.
const outward = kit.request;
kit.request = (method, url, headers, body) => {
  const server = serverOf(url);
  if (server instanceof Server) return server.take(method, url, headers, body);
  if (server !== undefined) return askBySocket(net.connect({ port: server.address().port }), method, url, headers, body);
  const { answer, giveUp } = outward(method, url, headers, body);
  const { hostname, port, protocol } = new URL(url);
  const place = Number(port || (protocol === "https:" ? 443 : 80));
  if (!isLocal(hostname) || !wasServed(place)) return { answer, giveUp };
  const address = hostname === "localhost" ? "127.0.0.1" : hostname.replace(/^\[|\]$/g, "");
  const refused = failed("ECONNREFUSED", "connect", { address, port: place });
  return { giveUp, answer: answer.catch((error) => { throw error.kind === "denied" ? refused : error }) };
};

// As in Node, `new` may be left out.
const callable = (Class) => new Proxy(Class, { apply: (target, _this, given) => new target(...given) });

module.exports = { Server: callable(Server), ServerResponse, askBySocket, createServer: (...given) => new Server(...given), hangUp, serverOf };
