// Servers of node:http that answer the requests of their own kernel: `fetch` and `http.request` to this machine's own address
// reach them without the host. Nothing else can connect to them, and nothing listens anywhere.
const { EventEmitter } = kit.requireBuiltin("events");
const STATUS_CODES = require("deno/status_codes.js");
const { IncomingMessage, OutgoingMessage, Pipe } = require("deno/http_messages.js");
const { Listening, coded, failed, find, isLocal, wasServed } = require("deno/ports.js");

// The port that connections come from, where it means nothing.
const CLIENT_PORT = 65535;

const hangUp = () => coded("ECONNRESET", "socket hang up");

// The server that an address leads to, if any of this kernel does.
function serverOf(url) {
  const { protocol, hostname, port } = new URL(url);
  const server = protocol === "http:" && isLocal(hostname) ? find(Number(port || 80)) : undefined;
  return server instanceof Server ? server : undefined;
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
    if (!this.hasHeader("connection")) headers.push("Connection", "keep-alive", "Keep-Alive", "timeout=5");
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

class Server extends EventEmitter {
  #listening = new Listening();
  #answers = new Set();
  #isClosing = false;
  timeout = 0;
  keepAliveTimeout = 5000;
  headersTimeout = 60000;
  requestTimeout = 300000;
  maxHeadersCount = null;
  maxRequestsPerSocket = 0;

  constructor(...given) {
    super();
    const listener = given.find((one) => typeof one === "function");
    if (listener) this.on("request", listener);
  }

  get listening() {
    return this.#listening.isOpen;
  }
  listen(...given) {
    return this.#listening.start(this, given);
  }
  address() {
    return this.#listening.address();
  }
  close(callback) {
    const wasOpen = this.listening;
    if (callback) {
      if (wasOpen) this.once("close", callback);
      else process.nextTick(() => callback(coded("ERR_SERVER_NOT_RUNNING", "Server is not running.")));
    }
    if (!wasOpen) return this;
    this.#listening.stop();
    this.#isClosing = true;
    this.#closeWhenDone();
    return this;
  }
  #closeWhenDone() {
    if (!this.#isClosing || this.#answers.size > 0) return;
    this.#isClosing = false;
    process.nextTick(() => this.emit("close"));
  }
  [Symbol.asyncDispose]() {
    return new Promise((resolve) => this.close(() => resolve()));
  }
  closeAllConnections() {
    for (const answer of this.#answers) answer.destroy();
  }
  closeIdleConnections() {}
  getConnections(callback) {
    const count = this.#answers.size;
    process.nextTick(() => callback(null, count));
  }
  setTimeout(milliseconds, callback) {
    if (callback) this.on("timeout", callback);
    return this;
  }
  ref() {
    return this;
  }
  unref() {
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
      setTimeout() {}, setKeepAlive() {}, setNoDelay() {}, ref() {}, unref() {}, destroy: () => giveUp(),
    });
    const request = Object.assign(new IncomingMessage(null, pairs, content, { socket }), { method, url: `${pathname}${search}`, req: undefined, statusMessage: null });
    let response;
    const answer = new Promise((resolve, reject) => {
      response = new ServerResponse(request, resolve);
      this.#answers.add(response);
      const over = () => {
        this.#answers.delete(response);
        this.#closeWhenDone();
      };
      response.once("finish", () => {
        over();
        process.nextTick(() => response.emit("close"));
      });
      response.once("close", () => {
        over();
        reject(hangUp());
      });
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
    return { answer, giveUp };
  }
}

// Requests to this kernel's own servers go to them. Where one listened and does no more, a request is refused in Node's words;
// what else is not granted, in the host's.
const outward = kit.request;
kit.request = (method, url, headers, body) => {
  const server = serverOf(url);
  if (server !== undefined) return server.take(method, url, headers, body);
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

module.exports = { Server: callable(Server), ServerResponse, createServer: (...given) => new Server(...given), hangUp, serverOf };
