// node:net within one kernel: its sockets connect to servers of the same kernel, and to nothing else.
const { Buffer } = require("deno/deno_node/internal/buffer.js");
const { EventEmitter } = kit.requireBuiltin("events");
const { Duplex } = kit.requireBuiltin("stream");
const { Listening, coded, connections, failed, find, isLocal, placeOf, portOf, settle } = require("deno/network/ports.js");
const { NETWORK } = require("deno/runtime/refusing.js");
const { BlockList, SocketAddress, isIP, isIPv4, isIPv6 } = require("deno/network/addresses.js");

const SOCKETS_MAX = 1024;
// Ports of the sides that connect.
const CLIENT_PORT_FIRST = 32768;
const CLIENT_PORTS = 16384;

let sockets = 0;
let clients = 0;

const secret = Symbol("secret");

class Socket extends Duplex {
  #peer;
  #server;
  #local;
  #remote;
  #waiting; // what is to be done when it is connected
  #more; // what tells the peer that there is room again
  #timer;
  #isCounted = false;
  connecting = false;
  bytesRead = 0;
  bytesWritten = 0;
  timeout = undefined;

  constructor(options = {}) {
    const { allowHalfOpen = false, signal, highWaterMark } = typeof options === "number" ? {} : options ?? {};
    super({ allowHalfOpen, emitClose: false, autoDestroy: true, decodeStrings: true, ...(highWaterMark === undefined ? {} : { highWaterMark }) });
    if (signal) signal.addEventListener("abort", () => this.destroy(signal.reason), { once: true });
  }

  // Makes a pair of what has called and of what a server is given.
  static [secret](client, server, options, local, remote) {
    const other = new Socket(options);
    for (const [one, peer, mine, its] of [[client, other, local, remote], [other, client, remote, local]]) {
      one.#peer = peer;
      one.#local = mine;
      one.#remote = its;
      one.#isCounted = true;
    }
    sockets += 2;
    other.#server = server;
    return other;
  }
  static serverOf(socket) {
    return socket.#server;
  }

  connect(...given) {
    const list = Array.isArray(given[0]) ? given[0] : given;
    const { options, callback } = placeOf(list);
    const { path, host = "localhost", port } = options;
    const place = path ?? portOf(port, "Port");
    if (callback) this.once("connect", callback);
    this.connecting = true;
    if (options.timeout) this.setTimeout(options.timeout);
    setImmediate(() => this.#begin(place, path, host));
    return this;
  }

  #begin(place, path, host) {
    if (this.destroyed) return;
    const address = path === undefined ? (host === "localhost" ? "127.0.0.1" : host) : undefined;
    if (path === undefined && !isLocal(host)) return void this.destroy(kit.unsupported(`net.connect to ${host}`, NETWORK));
    if (path === undefined && host === "localhost") this.emit("lookup", null, address, 4, host);
    const server = find(place);
    if (server?.[accept] === undefined || sockets + 2 > SOCKETS_MAX) {
      return void this.destroy(failed(path === undefined ? "ECONNREFUSED" : "ENOENT", "connect", path === undefined ? { address, port: place } : { path }));
    }
    const family = address?.includes(":") ? "IPv6" : "IPv4";
    const local = path === undefined ? { address, port: CLIENT_PORT_FIRST + (clients++ % CLIENT_PORTS), family } : {};
    server[accept](this, local, path === undefined ? { address, port: place, family } : {});
    this.connecting = false;
    this.emit("connect");
    this.emit("ready");
    const waiting = this.#waiting;
    this.#waiting = undefined;
    waiting?.();
  }

  // ---- Data

  #active() {
    if (this.timeout > 0) this.#arm();
  }
  #arm() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.emit("timeout"), this.timeout).unref();
  }

  _read() {
    const more = this.#more;
    this.#more = undefined;
    more?.();
  }

  // Takes what the peer has written, and calls `done` when there is room for more.
  #receive(bytes, done) {
    if (this.destroyed) return done(failed("ECONNRESET", "write"));
    this.#active();
    this.bytesRead += bytes.length;
    if (this.push(bytes)) done();
    else this.#more = done;
  }
  #receiveEnd() {
    if (this.destroyed || this.readableEnded) return;
    this.push(null);
    this.read(0);
  }

  _write(chunk, encoding, done) {
    if (this.connecting) {
      this.#waiting = () => this._write(chunk, encoding, done);
      return;
    }
    if (this.#peer === undefined) return done(failed("EPIPE", "write"));
    this.#active();
    const bytes = Buffer.from(chunk);
    this.bytesWritten += bytes.length;
    setImmediate(() => (this.#peer === undefined || this.#peer.destroyed ? done(failed("EPIPE", "write")) : this.#peer.#receive(bytes, done)));
  }
  _final(done) {
    if (this.connecting) {
      this.#waiting = () => this._final(done);
      return;
    }
    const peer = this.#peer;
    setImmediate(() => peer?.#receiveEnd());
    done();
  }
  _destroy(error, done) {
    clearTimeout(this.#timer);
    this.connecting = false;
    const peer = this.#peer;
    if (this.#isCounted) sockets--;
    this.#isCounted = false;
    done(error);
    setImmediate(() => {
      if (peer !== undefined && !peer.destroyed) {
        // Who waits for room here waits in vain.
        this._read();
        if (error || this.#isReset) peer.destroy(failed("ECONNRESET", "read"));
        else peer.#receiveEnd();
      }
      this.#server?.[left](this);
      this.emit("close", Boolean(error));
    });
  }

  // ---- As Node's

  #isReset = false;
  resetAndDestroy() {
    this.#isReset = true;
    return this.destroy();
  }
  destroySoon() {
    if (this.writable) this.end();
    if (this.writableFinished) this.destroy();
    else this.once("finish", () => this.destroy());
  }
  setTimeout(milliseconds, callback) {
    this.timeout = milliseconds;
    clearTimeout(this.#timer);
    if (milliseconds > 0) this.#arm();
    if (callback) this[milliseconds > 0 ? "once" : "off"]("timeout", callback);
    return this;
  }
  setNoDelay() {
    return this;
  }
  setKeepAlive() {
    return this;
  }
  ref() {
    return this;
  }
  unref() {
    return this;
  }
  address() {
    return this.#local === undefined ? {} : { ...this.#local };
  }
  get pending() {
    return this.#peer === undefined;
  }
  get readyState() {
    if (this.connecting) return "opening";
    if (this.readable && this.writable) return "open";
    if (this.readable) return "readOnly";
    return this.writable ? "writeOnly" : "closed";
  }
  get bufferSize() {
    return this.writableLength;
  }
  get localAddress() {
    return this.#local?.address;
  }
  get localPort() {
    return this.#local?.port;
  }
  get localFamily() {
    return this.#local?.family;
  }
  get remoteAddress() {
    return this.destroyed ? undefined : this.#remote?.address;
  }
  get remotePort() {
    return this.destroyed ? undefined : this.#remote?.port;
  }
  get remoteFamily() {
    return this.destroyed ? undefined : this.#remote?.family;
  }
}

const makePair = Socket[secret];
delete Socket[secret];
delete Socket.serverOf;

// What a socket calls of a server: with a connection, and when one is over.
const accept = Symbol("accept");
const left = Symbol("left");

class Server extends EventEmitter {
  #listening = new Listening();
  #sockets = new Set();
  maxConnections = undefined;

  constructor(...given) {
    super();
    const [options] = given;
    this.options = typeof options === "object" && options !== null ? options : {};
    this.allowHalfOpen = this.options.allowHalfOpen ?? false;
    this.pauseOnConnect = this.options.pauseOnConnect ?? false;
    const listener = given.find((one) => typeof one === "function");
    if (listener) this.on("connection", listener);
  }

  [accept](client, local, remote) {
    const socket = makePair(client, this, { allowHalfOpen: this.allowHalfOpen, highWaterMark: this.options.highWaterMark }, local, remote);
    if (this.maxConnections !== undefined && this.#sockets.size >= this.maxConnections) {
      this.emit("drop", { localAddress: remote.address, localPort: remote.port, remoteAddress: local.address, remotePort: local.port });
      return void socket.destroy();
    }
    this.#sockets.add(socket);
    if (this.pauseOnConnect) socket.pause();
    // The side that has called hears of it first.
    setImmediate(() => this.emit("connection", socket));
  }
  [left](socket) {
    this.#sockets.delete(socket);
    this[settle]();
  }
  // Connections that are open.
  [connections]() {
    return this.#sockets.size;
  }
  [settle]() {
    this.#listening.settle(this, this[connections]() > 0);
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
    this.#listening.close(this, callback);
    this[settle]();
    return this;
  }
  getConnections(callback) {
    const count = this[connections]();
    process.nextTick(() => callback(null, count));
    return this;
  }
  [Symbol.asyncDispose]() {
    return new Promise((resolve) => this.close(() => resolve()));
  }
  ref() {
    return this;
  }
  unref() {
    return this;
  }
}

// As in Node, `new` may be left out.
const callable = (Class) => new Proxy(Class, { apply: (target, _this, given) => new target(...given) });
const connect = (...given) => {
  const { options } = placeOf(given);
  return new Socket(options).connect(...given);
};

let selects = true;
const PublicSocket = callable(Socket);
module.exports = {
  BlockList, Server: callable(Server), Socket: PublicSocket, SocketAddress, Stream: PublicSocket, connect, createConnection: connect,
  createServer: (...given) => new Server(...given), isIP, isIPv4, isIPv6,
  getDefaultAutoSelectFamily: () => selects, setDefaultAutoSelectFamily: (value) => void (selects = value),
  getDefaultAutoSelectFamilyAttemptTimeout: () => 250, setDefaultAutoSelectFamilyAttemptTimeout() {},
};
