// Servers of node:http that answer the requests of their own kernel: `fetch` and `http.request` to this machine's own address
// reach them without the host. Nothing else can connect to them, and nothing listens anywhere.
const { Buffer } = require("deno/deno_node/internal/buffer.js");
const { EventEmitter } = kit.requireBuiltin("events");
const STATUS_CODES = require("deno/status_codes.js");

const LOCAL = new Set(["localhost", "127.0.0.1", "[::1]", "0.0.0.0"]);
// Ports that are chosen where a program leaves the choice.
const PORT_FIRST = 49152;
const PORT_LAST = 65535;
const SERVERS_MAX = 256;

const servers = new Map();

const coded = (code, message) => Object.assign(new Error(message), { code });

// The server that an address leads to, if any of this kernel does.
function serverOf(url) {
  const { protocol, hostname, port } = new URL(url);
  return protocol === "http:" && LOCAL.has(hostname) ? servers.get(Number(port || 80)) : undefined;
}

function freePort() {
  for (let port = PORT_FIRST; port <= PORT_LAST; port++) if (!servers.has(port)) return port;
  throw coded("EADDRINUSE", "no port is free");
}

// Makes the classes, of those of the module's other side.
function make(IncomingMessage, OutgoingMessage) {
  class ServerResponse extends OutgoingMessage {
    #pieces = [];
    #answer;
    statusCode = 200;
    statusMessage = undefined;
    sendDate = true;

    constructor(request, answer = () => {}) {
      super({ autoDestroy: false, decodeStrings: true });
      this.#answer = answer;
      Object.assign(this, { req: request, socket: request.socket });
    }

    get connection() {
      return this.socket;
    }
    get writableFinished() {
      return this.finished;
    }

    writeHead(status, ...rest) {
      if (!Number.isInteger(status) || status < 100 || status > 999) throw Object.assign(new RangeError(`Invalid status code: ${status}`), { code: "ERR_HTTP_INVALID_STATUS_CODE" });
      this.statusCode = status;
      if (typeof rest[0] === "string") this.statusMessage = rest.shift();
      const [headers] = rest;
      if (Array.isArray(headers)) for (let i = 0; i < headers.length; i += 2) this.appendHeader(headers[i], headers[i + 1]);
      else for (const [name, value] of Object.entries(headers ?? {})) if (value !== undefined) this.setHeader(name, value);
      this.headersSent = true;
      return this;
    }
    writeContinue() {}
    writeProcessing() {}
    flushHeaders() {
      this.headersSent = true;
    }

    _write(chunk, encoding, done) {
      this.headersSent = true;
      this.#pieces.push(chunk);
      done();
    }

    end(...given) {
      this.finished = true;
      return super.end(...given);
    }

    _final(done) {
      this.headersSent = true;
      const isBare = this.req.method === "HEAD" || this.statusCode === 204 || this.statusCode === 304;
      const body = isBare ? Buffer.alloc(0) : Buffer.concat(this.#pieces);
      this.#pieces = [];
      const headers = [];
      for (const [name, value] of Object.entries(this.getHeaders())) for (const one of [value].flat()) headers.push(name, String(one));
      if (this.sendDate && !this.hasHeader("date")) headers.push("date", new Date().toUTCString());
      if (!this.hasHeader("connection")) headers.push("connection", "keep-alive");
      if (!isBare && !this.hasHeader("content-length") && !this.hasHeader("transfer-encoding")) headers.push("content-length", String(body.length));
      this.statusMessage ??= STATUS_CODES[this.statusCode] ?? "unknown";
      this.#answer({ status: this.statusCode, headers, body: new Uint8Array(body) });
      done();
    }
  }

  class Server extends EventEmitter {
    #port;
    #host;
    timeout = 0;
    keepAliveTimeout = 5000;
    headersTimeout = 60000;
    requestTimeout = 300000;
    maxHeadersCount = null;

    constructor(...given) {
      super();
      const listener = given.find((one) => typeof one === "function");
      if (listener) this.on("request", listener);
    }

    get listening() {
      return this.#port !== undefined;
    }

    listen(...given) {
      const callback = given.find((one) => typeof one === "function");
      const [first, second] = given;
      const options = typeof first === "object" && first !== null ? first : { port: first, host: typeof second === "string" ? second : undefined };
      if (callback) this.once("listening", callback);
      if (this.listening) throw coded("ERR_SERVER_ALREADY_LISTEN", "Listen method has been called more than once without closing.");
      const port = typeof options.port === "function" || !options.port ? freePort() : Number(options.port);
      if (!Number.isInteger(port) || port > 65535 || port < 0) {
        throw Object.assign(new RangeError(`options.port should be >= 0 and < 65536. Received ${options.port}.`), { code: "ERR_SOCKET_BAD_PORT" });
      }
      const host = options.host ?? "::";
      if (servers.has(port) || servers.size >= SERVERS_MAX) {
        const error = Object.assign(coded("EADDRINUSE", `listen EADDRINUSE: address already in use ${host}:${port}`), { errno: -98, syscall: "listen", address: host, port });
        process.nextTick(() => this.emit("error", error));
        return this;
      }
      servers.set(port, this);
      this.#port = port;
      this.#host = host === "localhost" ? "127.0.0.1" : host;
      process.nextTick(() => this.emit("listening"));
      return this;
    }

    address() {
      if (!this.listening) return null;
      return { address: this.#host, family: this.#host.includes(":") ? "IPv6" : "IPv4", port: this.#port };
    }

    close(callback) {
      const error = this.listening ? undefined : coded("ERR_SERVER_NOT_RUNNING", "Server is not running.");
      servers.delete(this.#port);
      this.#port = undefined;
      if (callback) process.nextTick(() => callback(error));
      if (error === undefined) process.nextTick(() => this.emit("close"));
      return this;
    }
    [Symbol.asyncDispose]() {
      return new Promise((resolve) => this.close(() => resolve()));
    }

    closeAllConnections() {}
    closeIdleConnections() {}
    getConnections(callback) {
      process.nextTick(() => callback(null, 0));
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

    // One request, as `kit.request` has it: its answer, and what gives it up.
    take(method, url, headers, body) {
      const { host, pathname, search } = new URL(url);
      const pairs = [...headers];
      const names = new Set(pairs.filter((_, i) => i % 2 === 0).map((name) => name.toLowerCase()));
      if (!names.has("host")) pairs.unshift("host", host);
      if (!names.has("connection")) pairs.push("connection", "keep-alive");
      const content = body ?? new Uint8Array(0);
      if (content.length > 0 && !names.has("content-length")) pairs.push("content-length", String(content.length));
      const socket = Object.assign(new EventEmitter(), {
        remoteAddress: "127.0.0.1", remoteFamily: "IPv4", remotePort: PORT_LAST, localAddress: "127.0.0.1", localPort: this.#port, encrypted: false,
        setTimeout() {}, setKeepAlive() {}, setNoDelay() {}, destroy() {}, ref() {}, unref() {},
      });
      const request = Object.assign(new IncomingMessage(null, pairs, content, { socket }), { method, url: `${pathname}${search}`, req: undefined, statusMessage: null });
      let response;
      const answer = new Promise((resolve, reject) => {
        response = new ServerResponse(request, resolve);
        response.once("close", () => reject(coded("ECONNRESET", "socket hang up")));
        setImmediate(() => {
          try {
            if (!this.emit("request", request, response)) response.end();
          } catch (error) {
            reject(coded("ECONNRESET", "socket hang up"));
            throw error;
          }
        });
      });
      const giveUp = () => {
        request.aborted = true;
        request.emit("aborted");
        response.destroy();
      };
      return { answer, giveUp };
    }
  }

  return { Server, ServerResponse, createServer: (...given) => new Server(...given) };
}

// Requests to this kernel's own servers go to them.
const outward = kit.request;
kit.request = (method, url, headers, body) => {
  const server = serverOf(url);
  return server === undefined ? outward(method, url, headers, body) : server.take(method, url, headers, body);
};

module.exports = { make };
